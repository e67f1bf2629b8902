//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
)

// TestCopiesOfOrdinaryMemory copies odd sizes from odd addresses to odd addresses and back, and clears the source as
// soon as CopyIn returns.
func TestCopiesOfOrdinaryMemory(t *testing.T) {
	for name, o := range map[string]fakecuda.Options{
		"late": {}, "at once": {Pace: fakecuda.AtOnce}, "background": {Pace: fakecuda.Background}, "harsh": {Harsh: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, o)
			s := r.stream()
			p := r.alloc(6 << 20)
			for _, size := range []int{
				1, 3, 4095, slotBytes - 64, slotBytes, slotBytes + 1, pieceBytes + 1, singleBytes, singleBytes + 1,
				2*workerBytes + 13, areaBytes + 1, 5<<20 - 1,
			} {
				for _, offset := range []int{0, 4097} {
					src := drivertest.Noise(uint64(size+offset), size+offset)[offset:]
					want := bytes.Clone(src)
					r.ok(s.Fill(p+driver.Pointer(offset+size), 0xee, 1))
					r.ok(s.CopyIn(p+driver.Pointer(offset), src))
					clear(src)
					got := make([]byte, size+2)
					r.ok(s.CopyOut(got[1:1+size], p+driver.Pointer(offset)))
					if !bytes.Equal(got[1:1+size], want) {
						t.Errorf("%d bytes at %d: other bytes came back", size, offset)
					}
					if got[0] != 0 || got[size+1] != 0 {
						t.Errorf("%d bytes at %d: CopyOut wrote beside its slice", size, offset)
					}
					r.holds(s, p+driver.Pointer(offset+size), []byte{0xee})
				}
			}
			r.ok(s.CopyIn(p, nil))
			r.ok(s.CopyOut(nil, p))
		})
	}
}

// hold stops the work of s until the machine's Release, or until the test ends: Close waits for it.
func (r *rig) hold(s *stream) {
	r.m.Hold(uint64(s.handle))
	r.Cleanup(func() { r.m.Release(uint64(s.handle)) })
}

// watch starts f, which copies, and returns when it has ended or waits for the device: it is made to ask for ever
// rather than to wait in libcuda, so that this shows. Its error comes through the channel.
func (r *rig) watch(f func() error) (ended chan error, waits bool) {
	const many = 1000 // questions; a copy that does not wait asks once or twice for each piece
	r.d.staged().slots.polls, r.d.staged().areas.polls = 1<<30, 1<<30
	before := r.m.Calls("cuEventQuery")
	ended = make(chan error, 1)
	go func() { ended <- f() }()
	for len(ended) == 0 {
		if r.m.Calls("cuEventQuery") > before+many {
			return ended, true
		}
		runtime.Gosched()
	}
	return ended, false
}

// TestCopyInDoesNotWaitForTheDevice: the stream does nothing, and yet sources are free when CopyIn returns.
func TestCopyInDoesNotWaitForTheDevice(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	const long, short, n = areaShare*areaBytes/2 + 3, 1000, 500
	p := r.alloc(long + short*n)
	r.hold(s)
	src := drivertest.Noise(1, long)
	want := bytes.Clone(src)
	ended, waits := r.watch(func() error {
		if err := s.CopyIn(p, src); err != nil {
			return err
		}
		clear(src)
		for i := range n {
			b := drivertest.Noise(uint64(i), short)
			want = append(want, b...)
			if err := s.CopyIn(p+long+driver.Pointer(i*short), b); err != nil {
				return err
			}
			clear(b)
		}
		return nil
	})
	if waits {
		t.Fatal("CopyIn waits")
	}
	r.ok(<-ended)
	if r.m.Queued(uint64(s.handle)) < n {
		t.Errorf("%d pieces of work queued, want all the copies", r.m.Queued(uint64(s.handle)))
	}
	r.m.Release(uint64(s.handle))
	r.holds(s, p, want)
}

// TestCopyInOfMoreThanItsShare waits until the device has come to it, and then goes on.
func TestCopyInOfMoreThanItsShare(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	const size = areaShare*areaBytes + 1
	p := r.alloc(size)
	want := drivertest.Noise(1, size)
	r.hold(s)
	ended, waits := r.watch(func() error { return s.CopyIn(p, want) })
	if !waits {
		t.Fatalf("CopyIn did not wait: %v", <-ended)
	}
	r.m.Release(uint64(s.handle))
	r.ok(<-ended)
	if made := r.d.staged().areas.made; made > areaShare {
		t.Errorf("%d areas for one copy, at most %d", made, areaShare)
	}
	r.holds(s, p, want)
}

// TestOneLaneWaitsForTheWorkBefore: waiting in libcuda spins, and the work before a copy may take long.
func TestOneLaneWaitsForTheWorkBefore(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.AtOnce})
	s, p, g := r.stream(), r.alloc(4096), r.d.staged()
	g.areas.polls = 1
	const n = 4
	r.hold(s)
	r.ok(s.Fill(p, 1, 4096))
	r.ok(r.d.enter("test"))
	defer r.d.leave()
	workers := make([]copier, n)
	for i := range workers {
		workers[i].areas = []*area{g.areas.more()}
		if result := g.areas.mark(workers[i].areas[0], s.handle); result != cu.Success {
			t.Fatalf("mark an area: result %d", result)
		}
	}
	c := newLongCopy(s, "Stream.CopyIn", 8<<20, nil)
	asked := r.m.Calls("cuEventQuery")
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			if r.d.enter("test") != nil {
				return
			}
			defer r.d.leave()
			if got := c.await(workers[i].areas[0]); got != cu.Success {
				t.Errorf("worker %d: result %d", i, got)
			}
		})
	}
	for r.m.Calls("cuEventQuery") < asked+n {
		runtime.Gosched()
	}
	r.m.Release(uint64(s.handle))
	wg.Wait()
	if waited := r.m.Calls("cuEventSynchronize"); waited != 1 {
		t.Errorf("%d workers waited in libcuda, want one", waited)
	}
	for _, l := range workers {
		g.areas.give(l.areas...)
	}
}

// TestShortCopiesCostOneCall: what they lie in is had once for many.
func TestShortCopiesCostOneCall(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	p := r.alloc(1 << 20)
	r.ok(s.CopyIn(p, make([]byte, 64)))
	before := len(r.m.Log())
	const n = 1000
	for i := range n {
		r.ok(s.CopyIn(p+driver.Pointer(64*i), make([]byte, 64)))
	}
	others := 0
	for _, c := range r.m.Log()[before:] {
		if c.Symbol != "cuMemcpyHtoDAsync_v2" && !contextCall[c.Symbol] {
			others++
		}
	}
	if others > 5 {
		t.Errorf("%d calls besides those that set the context and copy, for %d copies", others, n)
	}
}

func TestCopiesKeepTheStreamsOrder(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
	s := r.stream()
	const size = 9<<20 + 1
	p := r.alloc(2*size + 4096)
	q := p + size + 4096
	for i := range 4 {
		for _, n := range []int{100, size} {
			src := drivertest.Noise(uint64(i), n)
			r.ok(s.Fill(p, 0x11, size))
			r.ok(s.CopyIn(p, src))
			r.ok(s.Copy(q, p, size))
			r.ok(s.Fill(p, 0x22, size))
			r.holds(s, q, append(src, bytes.Repeat([]byte{0x11}, size-n)...))
		}
	}
}

// TestCopiesAtOnce has more copies under way than there are areas, both ways.
func TestCopiesAtOnce(t *testing.T) {
	for _, limit := range []int{1, 2, areaLimit} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
			r.d.staged().areas.limit = limit
			var wg sync.WaitGroup
			errs := make([]error, 5)
			for g := range errs {
				s, size := r.stream(), 5<<20+1000*g
				p := r.alloc(int64(size))
				wg.Go(func() {
					for round := range 3 {
						want, got := drivertest.Noise(uint64(10*g+round), size), make([]byte, size)
						err := errors.Join(s.CopyIn(p, want[:100]), s.CopyIn(p+100, want[100:]), s.CopyOut(got, p))
						if err == nil && !bytes.Equal(got, want) {
							err = errors.New("other bytes came back")
						}
						if err != nil {
							errs[g] = fmt.Errorf("goroutine %d: %w", g, err)
							return
						}
					}
				})
			}
			wg.Wait()
			r.ok(errors.Join(errs...))
			if made := r.d.staged().areas.made; made > limit {
				t.Errorf("%d areas, at most %d", made, limit)
			}
		})
	}
}

// TestOneStreamsCopiesAtOnce: copies of disjoint ranges on the same stream.
func TestOneStreamsCopiesAtOnce(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.Background})
	s := r.stream()
	const n, size = 6, 3<<20 + 7
	p := r.alloc(n * size)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for g := range n {
		wg.Go(func() {
			mine := p + driver.Pointer(g*size)
			want, got := drivertest.Noise(uint64(g), size), make([]byte, size)
			errs[g] = errors.Join(s.CopyIn(mine, want), s.CopyOut(got, mine))
			if errs[g] == nil && !bytes.Equal(got, want) {
				errs[g] = fmt.Errorf("goroutine %d: other bytes came back", g)
			}
			if _, err := s.Mark(); err != nil {
				errs[g] = err
			}
		})
	}
	wg.Wait()
	r.ok(errors.Join(errs...))
}

// TestCopyWaitsForAnAreaOfAnotherStream: with all areas pending on a stream that stands still, a copy on another waits
// until that goes on. Marks of the other stream do not.
func TestCopyWaitsForAnAreaOfAnotherStream(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	areas := &r.d.staged().areas
	areas.limit = 1
	a, b := r.stream(), r.stream()
	const size = slotBytes + 1
	p := r.alloc(2 * size)
	r.hold(a)
	first, second := drivertest.Noise(1, size), drivertest.Noise(2, size)
	r.ok(a.CopyIn(p, first))
	ended := make(chan error, 1)
	go func() { ended <- b.CopyIn(p+size, second) }()
	for taken := false; !taken; {
		if len(ended) > 0 {
			t.Fatalf("the copy on the other stream did not wait: %v", <-ended)
		}
		markOf(t, b)
		areas.mu.Lock()
		taken = len(areas.free) == 0 // by who waits for it
		areas.mu.Unlock()
	}
	r.m.Release(uint64(a.handle))
	r.ok(<-ended)
	r.holds(a, p, first)
	r.holds(b, p+size, second)
}

// TestPageLockedMemoryIsCopiedInPlace, and CopyIn of it waits until it may be reused.
func TestPageLockedMemoryIsCopiedInPlace(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	const size = 5<<20 + 1
	p := r.alloc(size)
	b, err := r.d.Pinned().AllocHost(size)
	r.ok(err)
	want := drivertest.Noise(1, size)
	copy(b, want)
	before := r.m.Calls("cuMemHostAlloc")
	r.ok(s.CopyIn(p, b))
	clear(b)
	r.ok(s.CopyOut(b[1:], p+1))
	if !bytes.Equal(b[1:], want[1:]) {
		t.Error("other bytes came back")
	}
	if r.m.Calls("cuMemHostAlloc") != before || r.m.Calls("cuMemcpyHtoDAsync_v2") != 1 {
		t.Error("it was staged")
	}
}

// TestWithoutPageLockedMemory: the driver's own way is taken.
func TestWithoutPageLockedMemory(t *testing.T) {
	r := newRig(t, fakecuda.Options{Missing: []string{"cuMemHostAlloc"}, Harsh: true})
	s := r.stream()
	const size = 3<<20 + 1
	p := r.alloc(size)
	for _, n := range []int{100, slotBytes + 1, size} {
		src := drivertest.Noise(uint64(n), n)
		want := bytes.Clone(src)
		r.ok(s.CopyIn(p, src))
		clear(src)
		r.holds(s, p, want)
	}
	_, err := r.d.Pinned().AllocHost(4096)
	r.wantErr("AllocHost", err, driver.ErrUnsupported)
}

func TestCopiesAreRefusedInACapture(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	p := r.alloc(1 << 20)
	r.ok(s.CopyIn(p, make([]byte, 10))) // a slot is open
	r.ok(r.d.Graphs().Begin(s))
	for _, n := range []int{0, 10, 1 << 20} {
		r.wantErr("CopyIn", s.CopyIn(p, make([]byte, n)), driver.ErrCapturing)
		r.wantErr("CopyOut", s.CopyOut(make([]byte, n), p), driver.ErrCapturing)
	}
	r.ok(s.Fill(p, 3, 100))
	other := r.stream() // goes on, with new areas too
	r.ok(other.CopyIn(p+1000, drivertest.Noise(1, 512<<10)))
	r.holds(other, p+1000, drivertest.Noise(1, 512<<10))
	g, err := r.d.Graphs().End(s)
	r.ok(err)
	if g.Nodes() != 1 {
		t.Errorf("%d nodes captured, want the Fill", g.Nodes())
	}
	r.ok(s.CopyIn(p, make([]byte, 10)))
	r.ok(g.Launch(s))
	r.holds(s, p, bytes.Repeat([]byte{3}, 100))
}

// copyCalls are the calls that copies make.
var copyCalls = []string{
	"cuMemHostAlloc", "cuEventCreate", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventSynchronize",
	"cuEventQuery", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
}

// TestEveryFailedCallOfACopy fails each call in turn: the copy is right or an error, later ones are right, and nothing
// is left behind.
func TestEveryFailedCallOfACopy(t *testing.T) {
	counts := map[string]int{}
	t.Run("none", func(t *testing.T) {
		r := newRig(t, fakecuda.Options{})
		before := map[string]int{}
		s, p := prepareCopies(r)
		for _, symbol := range copyCalls {
			before[symbol] = r.m.Calls(symbol)
		}
		r.ok(manyCopies(r, s, p))
		for _, symbol := range copyCalls {
			counts[symbol] = r.m.Calls(symbol) - before[symbol]
		}
	})
	for _, symbol := range copyCalls {
		if counts[symbol] == 0 {
			t.Errorf("copies do not call %s", symbol)
		}
		for nth := 1; nth <= counts[symbol] && !t.Failed(); nth++ {
			t.Run(fmt.Sprint(symbol, " ", nth), func(t *testing.T) {
				r := newRig(t, fakecuda.Options{})
				s, p := prepareCopies(r)
				before := r.m.Calls(symbol)
				r.m.Fail(symbol, nth, fakecuda.InvalidValue)
				for r.m.Calls(symbol)-before < nth { // how the work falls to the workers differs from time to time
					_ = manyCopies(r, s, p)
				}
				r.ok(manyCopies(r, s, p))
			})
		}
	}
}

// prepareCopies returns where manyCopies copies.
func prepareCopies(r *rig) (*stream, driver.Pointer) {
	g := r.d.staged()
	g.areas.limit = 3
	g.slots.polls, g.areas.polls = 1, 1
	return r.stream(), r.alloc(3 * workerBytes)
}

// noises are what manyCopies copies.
var noises = sync.OnceValue(func() (all [][]byte) {
	for i, n := range []int{100, 2*pieceBytes + 5, 2*workerBytes + 5, 200, slotBytes, singleBytes + 1} {
		all = append(all, drivertest.Noise(uint64(i), n))
	}
	return all
})

// manyCopies copies in every way. What succeeds must be right.
func manyCopies(r *rig, s *stream, p driver.Pointer) error {
	var errs []error
	for i, want := range noises() {
		got, src := make([]byte, len(want)), bytes.Clone(want)
		err := s.CopyIn(p, src)
		clear(src)
		if err == nil {
			err = s.CopyOut(got, p)
		}
		if err == nil && !bytes.Equal(got, want) {
			r.Errorf("other bytes came back from copy %d, without an error", i)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// TestCopyOnALostDevice fails and ends.
func TestCopyOnALostDevice(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, p := r.stream(), r.alloc(8<<20)
	r.ok(s.CopyIn(p, make([]byte, 8<<20)))
	r.m.Break(0, fakecuda.IllegalAddress)
	r.wantErr("CopyIn", s.CopyIn(p, make([]byte, 8<<20)), driver.ErrLost)
	r.wantErr("CopyOut", s.CopyOut(make([]byte, 8<<20), p), driver.ErrLost)
	r.wantErr("Close", r.d.Close(), driver.ErrLost) // and once closed, it is closed
}

// TestStreamsGiveTheirSlotsBack when they are closed.
func TestStreamsGiveTheirSlotsBack(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	p := r.alloc(4096)
	for range 20 {
		s := r.stream()
		r.ok(s.CopyIn(p, make([]byte, 100)))
		r.ok(s.Sync(context.Background()))
		r.ok(s.Close())
	}
	if made := r.d.staged().slots.made; made > 1 {
		t.Errorf("%d slots for streams one after the other", made)
	}
}

func TestPiecesAreTheWhole(t *testing.T) {
	for _, total := range []int{1, 4096, pieceBytes, pieceBytes + 1, areaBytes, areaBytes + 1, 33<<20 + 17, 1 << 30} {
		for _, workers := range []int{1, 2, 8} {
			var c pieces
			c.init(total, workers)
			at, n := 0, 0
			for ; ; n++ {
				start, end, ok := c.next()
				if !ok {
					break
				}
				if start != at || end <= start || end-start > areaBytes {
					t.Fatalf("%d bytes: a piece of [%d, %d) after %d", total, start, end, at)
				}
				at = end
			}
			if at != total || n != c.n {
				t.Errorf("%d bytes in %d workers: %d pieces up to %d", total, workers, n, at)
			}
		}
	}
}

// TestAreaIsLostIfItsEndIsUnknown: neither its event nor its stream could be waited for.
func TestAreaIsLostIfItsEndIsUnknown(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, p := r.stream(), r.alloc(slotBytes)
	r.ok(s.CopyIn(p, make([]byte, slotBytes)))
	lost := s.slot
	r.m.Fail("cuEventRecord", 1, fakecuda.InvalidValue)
	r.m.Fail("cuStreamSynchronize", 1, fakecuda.InvalidValue)
	r.ok(s.CopyIn(p, make([]byte, slotBytes))) // the slot is full
	if slots := &r.d.staged().slots; len(slots.lost) != 1 || slots.lost[0] != lost || slots.made != 1 {
		t.Errorf("%d slots lost, %d made", len(slots.lost), slots.made)
	}
	if s.slot == lost {
		t.Error("it is used again")
	}
}

// TestAStreamThatKeepsUpNeedsFewAreas: the one used last is used again, while it is in the processor's cache.
func TestAStreamThatKeepsUpNeedsFewAreas(t *testing.T) {
	r := newRig(t, fakecuda.Options{Pace: fakecuda.AtOnce})
	r.d.staged().workers = 1
	s, p := r.stream(), r.alloc(5<<20)
	for range 3 {
		r.ok(s.CopyIn(p, make([]byte, 200<<10)))
		r.ok(s.CopyIn(p, make([]byte, 5<<20)))
	}
	if made := r.d.staged().areas.made; made != 1 {
		t.Errorf("%d areas for copies one after the other, none of which the device made wait", made)
	}
}

// Long copies at the same time share the workers, and each has at least its caller.
func TestCopiesAtOnceShareTheWorkers(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, g := r.stream(), r.d.staged()
	g.workers = 4
	var copies []*longCopy
	for i, want := range []int{4, 2, 1, 1, 1} {
		c := newLongCopy(s, "Stream.CopyIn", 64<<20, func(*longCopy, *copier) error { return nil })
		if c.workers != want {
			t.Errorf("copy %d has %d workers, want %d", i, c.workers, want)
		}
		copies = append(copies, c)
	}
	r.ok(r.d.enter("Stream.CopyIn"))
	defer r.d.leave()
	for _, c := range copies {
		first, _ := g.areas.take(s.handle)
		r.ok(c.run(first))
	}
	if c := newLongCopy(s, "Stream.CopyIn", 64<<20, nil); c.workers != 4 {
		t.Errorf("a copy alone has %d workers, want 4", c.workers)
	}
}

// TestALaneThatWakesLateDoesNothing: the copy is over, and its device may be closed.
func TestALaneThatWakesLateDoesNothing(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	workers := 0
	c := newLongCopy(s, "Stream.CopyIn", 8<<20, func(*longCopy, *copier) error {
		workers++
		return nil
	})
	r.ok(r.d.enter("Stream.CopyIn"))
	first, _ := r.d.staged().areas.take(s.handle)
	r.ok(c.run(first))
	r.d.leave()
	r.ok(r.d.Close())
	before := len(r.m.Log())
	c.join()
	if workers != 1 || len(r.m.Log()) != before {
		t.Errorf("%d workers, want the caller's; %d calls after Close", workers, len(r.m.Log())-before)
	}
}
