package sim

import (
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// stalls checks how many calls of each kind have waited so far.
func (b *bench) stalls(when string, want map[Call]int64) {
	b.t.Helper()
	calls := b.Calls()
	for c := range NumCalls {
		if calls[c].Stalls != want[c] {
			b.t.Errorf("%s: %d stalls in %v, want %d", when, calls[c].Stalls, c, want[c])
		}
	}
}

func (b *bench) reached(s driver.Stream, m driver.Mark) bool {
	b.t.Helper()
	ok, err := s.Reached(m)
	b.ok(err)
	return ok
}

// Work of unknown length is never done before a call waits for it, whenever other work completes, and then all before
// it is.
func TestOccupiedStreamIsDoneWhenSomebodyWaits(t *testing.T) {
	for _, completion := range []Completion{AtOnce, AtRandom, OnDemand} {
		b := newBench(t, Options{Completion: completion, Unchecked: true}, 2)
		one, two := b.s[0].(*Stream), b.s[1].(*Stream)
		one.Occupy()
		one.Occupy()
		if n := b.Pending(0); n != 1 {
			t.Errorf("two pieces in a row are %d in the queue", n)
		}
		first := b.mark(one)
		one.Occupy()
		second := b.mark(one)
		b.ok(one.Fill(b.p, 7, 1))
		b.ok(two.WaitFor(one, second))
		b.ok(two.Fill(b.p+1, 8, 1))
		for range 50 {
			if b.reached(one, first) || b.reached(one, second) || b.in(0) == 7 && b.in(1) == 8 {
				t.Fatal("done, and no call waited")
			}
		}
		b.stalls("before", nil)
		b.ok(two.Sync(context.Background())) // which needs the first stream's work up to second
		if !b.reached(one, first) || !b.reached(one, second) || b.in(1) != 8 {
			t.Error("waited for, and not done")
		}
		b.stalls("after Sync", map[Call]int64{CallSync: 1})
		b.ok(one.Sync(context.Background())) // has the fill left to wait for, unless it completed by itself
		sync := b.Calls()[CallSync].Stalls
		if completion == AtOnce && sync != 1 || completion == OnDemand && sync != 2 {
			t.Errorf("%d calls of Sync had to wait", sync)
		}
		b.ok(one.Sync(context.Background()))
		b.mark(one)
		b.mark(two)
		p, err := b.Alloc(1)
		b.ok(err)
		b.ok(b.Free(p))
		b.stalls("with nothing but marks", map[Call]int64{CallSync: sync})
		one.Occupy()
		two.Occupy()
		b.ok(b.Free(b.p))
		b.ok(one.Sync(context.Background()))
		b.ok(two.Close())
		two.Occupy()
		b.stalls("a free waits for all streams", map[Call]int64{CallSync: sync, CallFree: 1})
		b.ok(b.Close())
		if calls := b.Calls(); calls.Total().Stalls != sync+1 {
			t.Errorf("the sum is %d", calls.Total().Stalls)
		}
	}
}

// The queue stays within its bound even with many marks after work that no call waits for, and the newest marks stay
// unreached.
func TestQueueOfOccupiedStreamIsBounded(t *testing.T) {
	b := newBench(t, Options{Unchecked: true}, 1)
	s := b.s[0].(*Stream)
	marks := make([]driver.Mark, 3*occupiedMost)
	for i := range marks {
		s.Occupy()
		marks[i] = b.mark(s)
	}
	if n := b.Pending(0); n > occupiedMost+1 {
		t.Errorf("%d pieces in the queue", n)
	}
	if !b.reached(s, marks[0]) || b.reached(s, marks[len(marks)-occupiedMost/2+1]) {
		t.Error("want the oldest marks reached, and the newest not")
	}
	b.stalls("no call waited", nil)
	if n := b.Advance(0, 2); n != 2 {
		t.Errorf("Advance completed %d pieces, want 2", n)
	}
}

// Closing a device takes memory for its streams, not for each pair of them.
func TestClosingIsLinearInStreams(t *testing.T) {
	const streams = 4096
	d := New(Options{Unchecked: true})
	for range streams {
		s, err := d.NewStream(driver.StreamOptions{})
		testkit.Must(t, err)
		s.(*Stream).Occupy()
	}
	before := testkit.Allocated()
	testkit.Must(t, d.Close())
	if took := testkit.Allocated() - before; took > 8<<20 {
		t.Errorf("closing a device of %d streams allocates %d bytes", streams, took)
	}
}

func BenchmarkOccupy(b *testing.B) {
	s := New(Options{Unchecked: true}).standard
	for b.Loop() {
		s.Occupy()
	}
}
