package paged_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// Once a stream is closed, its work is done. The memory that it used can be freed, moved, and used by a stream with the
// same ID.
func TestClosedStreams(t *testing.T) {
	for _, again := range []bool{false, true} {
		r := newRig(t, 8, sim.Options{Completion: sim.OnDemand}, paged.Config{NoAliases: true, Limit: 4 * granule}, nil)
		s := r.stream()
		b, keep := r.alloc(s, granule), r.granules(1)
		r.fill(s, b, 1)
		r.free(b)
		r.must(s.Close())
		if again {
			s = r.stream()
		} else {
			s = r.s
		}
		more := r.alloc(s, 3*granule) // needs b's page elsewhere
		r.fill(s, more, 2)
		r.check()
		r.free(more)
		r.must(r.a.EmptyCache())
		r.free(keep)
	}
}

// A block that a processor cache holds for a closed stream may go to a new stream with the same ID. Other streams must
// then wait for the new one.
func TestTheNumberOfAClosedStream(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: granule}, nil)
	for _, size := range []int64{granule, 512} {
		for range 3 {
			s := r.stream()
			b := r.alloc(s, size)
			r.fill(s, b, 1)
			r.free(b)
			r.must(s.Close())
			again := r.stream()
			if again.ID() != s.ID() {
				t.Fatalf("streams %d and %d: want one number", s.ID(), again.ID())
			}
			b = r.alloc(again, size)
			r.fill(again, b, 2)
			r.free(b)
			other := r.granules(1)
			r.fill(r.s, other, 3)
			r.holds(r.s, other, 3)
			r.free(other)
			r.must(again.Close())
		}
	}
}

// Before memory is unmapped, the host waits for the streams that used it, but not for other streams or for later work.
func TestUnmapWaitsForItsUsersAlone(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: 4 * granule, NoAliases: true}, nil)
	user, other := r.stream(), r.stream()
	theirs := r.alloc(other, granule)
	r.fill(other, theirs, 1)
	b, between := r.alloc(user, granule), r.granules(1)
	r.fill(user, b, 2)
	r.free(b)
	r.busy(other, theirs, 10)
	more := r.alloc(r.s, 2*granule)           // b's page is unmapped: the one that was not used for longest
	if n := r.sim.Pending(user.ID()); n > 1 { // a mark, for the stream that has the page now
		t.Errorf("the stream that used the page has %d pieces of work to do still", n)
	}
	if r.sim.Pending(other.ID()) < 10 {
		t.Error("the work of a stream that has nothing to do with the page is done")
	}
	if got := r.a.PageStats().Stalls; got != 1 {
		t.Errorf("%d stalls, want 1", got)
	}
	r.a.Free(theirs)
	r.free(between, more)
}

// Memory was remapped after a free, so a mark from that time exists, and the host does not wait for later work.
func TestUnmapWaitsForTheFree(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: 6 * granule, NoAliases: true}, nil)
	user := r.stream()
	theirs, b := r.alloc(user, granule), r.alloc(user, granule)
	between, c, tail := r.granules(1), r.granules(1), r.alloc(r.s, granule*3/2)
	r.fill(user, b, 2)
	r.free(c, b)
	first := r.alloc(r.s, granule+512) // shares tail's second page, and gets c's: that was not used for longest
	r.busy(user, theirs, 10)
	second := r.alloc(r.s, granule+512) // shares that, and gets b's
	if got := r.a.PageStats(); got.Stalls == 0 || got.Used != 6*granule {
		t.Errorf("nothing was remapped: %+v", got)
	}
	if r.sim.Pending(user.ID()) < 10 {
		t.Error("work that the page's last user queued after its free is done already")
	}
	r.free(theirs, between, tail, first, second)
}

// A stream used memory, and another stream then used it in order and freed it. Remapping does not wait for later work
// of the first stream.
func TestUnmapWaitsForNoFormerUser(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: 4 * granule, NoAliases: true}, nil)
	former, user := r.stream(), r.stream()
	theirs, b, between := r.alloc(former, granule), r.alloc(former, granule), r.granules(1)
	r.fill(former, b, 1)
	r.free(b)
	b = r.alloc(user, granule) // after what the first did with it
	r.fill(user, b, 2)
	r.busy(former, theirs, 10) // nothing to do with b
	r.free(b)
	more := r.granules(2) // b's page is unmapped
	if r.sim.Pending(user.ID()) > 1 {
		t.Error("the last user of the page has work to do still")
	}
	if r.sim.Pending(former.ID()) < 10 {
		t.Error("a stream that used the memory before its last user was waited for")
	}
	r.free(theirs, between, more)
}

// Streams with IDs from 63 on share one bit, but each of them is waited for.
func TestFarStreams(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: 8 * granule}, nil)
	var far []driver.Stream
	for n := range 70 {
		if s := r.stream(); n >= 64 {
			far = append(far, s)
		}
	}
	for round := range 8 {
		var blocks []mem.Block
		for i, s := range far {
			b := r.alloc(s, granule)
			r.fill(s, b, byte(round*8+i))
			blocks = append(blocks, b)
		}
		for i, b := range blocks {
			user := far[(i+round)%len(far)]
			if user != far[i] {
				m, err := far[i].Mark()
				r.must(err)
				r.must(user.WaitFor(far[i], m))
			}
			r.holds(user, b, byte(round*8+i))
			r.a.Free(b, user)
		}
		big := r.alloc(far[round%len(far)], 7*granule)
		r.fill(far[round%len(far)], big, 1)
		r.free(big)
	}
}

// Streams with high IDs are distinguished: each reuses the memory that it freed without a driver call, and another
// stream waits only for the streams that used the memory.
func TestDefect22_StreamsWithHighNumbersWaitForNoOthers(t *testing.T) {
	r := newRig(t, 256, sim.Options{}, paged.Config{}, nil)
	streams := make([]driver.Stream, 100)
	blocks := make([]mem.Block, len(streams))
	for i := range streams {
		streams[i] = r.stream()
		blocks[i] = r.alloc(streams[i], granule)
	}
	waits := func(what string, want int64, do func()) {
		t.Helper()
		before := r.sim.Calls()[sim.CallWaitFor].Count
		do()
		if n := r.sim.Calls()[sim.CallWaitFor].Count - before; n != want {
			t.Errorf("%s: %d waits, want %d", what, n, want)
		}
	}
	waits("each its own", 0, func() {
		for i := range streams {
			r.free(blocks[i])
			blocks[i] = r.alloc(streams[i], granule)
		}
	})
	waits("memory of three others", 3, func() {
		r.a.Free(blocks[98], streams[2], streams[70])
		blocks[98] = r.alloc(streams[99], granule)
	})
	r.free(blocks...)
	r.finish()
}

// A stream whose blocks are all freed is marked once more and queried until that mark is reached. After that it is not
// used: it may belong to another library, which may have destroyed it.
func TestStreamsWithoutBlocksAreLeftAlone(t *testing.T) {
	calls := map[driver.Stream]map[intercept.Kind]int{}
	r := newRig(t, 64, sim.Options{}, paged.Config{Limit: 8 * granule, NoAliases: true}, func(d driver.Device) driver.Device {
		return intercept.Wrap(d, func(c intercept.Call, next func() error) error {
			if calls[c.Stream] == nil {
				calls[c.Stream] = map[intercept.Kind]int{}
			}
			calls[c.Stream][c.Kind]++
			return next()
		})
	})
	s, other := r.stream(), r.stream()
	inner := r.dev.(*intercept.Device).UnwrapStream(other)
	remap := func() {
		unmapped := r.calls(func() {
			for range 4 {
				var live []mem.Block
				for range 8 {
					live = append(live, r.alloc(s, granule))
				}
				for i := 0; i < 8; i += 2 {
					r.a.Free(live[i], s)
					live[i] = mem.Block{}
				}
				live = append(live, r.alloc(s, 4*granule)) // of pages that are not neighbours
				for _, b := range live {
					r.a.Free(b, s)
				}
			}
		}, sim.CallUnmap)
		if unmapped == 0 {
			t.Error("no page was unmapped: nothing was shown")
		}
	}
	once := r.alloc(other, granule)
	r.fill(other, once, 1)
	r.a.Free(once, other)
	remap() // marks it, waits for it
	if calls[inner][intercept.Mark] == 0 {
		t.Error("the stream was not marked: nothing was shown")
	}
	clear(calls)
	remap()
	if n := calls[inner]; len(n) != 0 {
		t.Errorf("calls on the stream: %v", n)
	}
}
