package order

import "testing"

// Random captures are compared with sets of work, through the drivers, in driver/drivertest.

func TestPlaces(t *testing.T) {
	var c Capture
	a := c.Draw(7)
	if a.Ordered(a, 7) {
		t.Error("a tick of before the first mark is ordered")
	}
	a.Mark(8)
	a.Work()
	a.Mark(10)
	b := c.Draw(3)
	b.Wait(a, 9) // where a stood from 8 on
	b.Mark(4)
	for tick, want := range map[uint64]bool{7: false, 8: true, 9: true, 10: false, 11: false} {
		if got := b.Ordered(a, tick); got != want {
			t.Errorf("tick %d before what waited for tick 9: %v, want %v", tick, got, want)
		}
	}
	b.Wait(a, 10)
	a.Work()
	if !b.Ordered(a, 10) || b.Joined(a) {
		t.Error("a wait for a mark covers what came before it, and nothing more")
	}
	if before := [2]uint64{a.Before, b.Before}; before != [2]uint64{7, 3} {
		t.Errorf("before the capture: ticks %d", before)
	}
}

// Being drawn in is no work, and has to be joined all the same.
func TestDrawnInWithoutWork(t *testing.T) {
	var c Capture
	a, b := c.Draw(0), c.Draw(0)
	a.Mark(1)
	b.Wait(a, 1)
	b.Mark(1)
	if !a.Ordered(b, 1) {
		t.Error("a stream without work is not before another")
	}
	if a.Joined(b) {
		t.Error("a stream that was not waited for is joined")
	}
	a.Wait(b, 0) // of before the capture
	if a.Joined(b) {
		t.Error("a wait for a mark of before the capture joins")
	}
	a.Wait(b, 1)
	if !a.Joined(b) || !a.Joined(a) {
		t.Error("a stream that was waited for is not joined")
	}
}

// BenchmarkOrdered asks about a mark in the middle of 10^4 pieces of work on eight branches that join each other in turn.
func BenchmarkOrdered(b *testing.B) {
	var c Capture
	branches := make([]*Branch, 8)
	for i := range branches {
		branches[i] = c.Draw(0)
		branches[i].Mark(1)
	}
	for i := range 10_000 {
		at := branches[i%len(branches)]
		at.Work()
		at.Mark(uint64(i + 2))
		branches[(i+1)%len(branches)].Wait(at, uint64(i+2))
	}
	b.ReportAllocs()
	for b.Loop() {
		branches[1].Ordered(branches[2], 5000)
	}
}
