package bfc_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

// TestWarmCalls: what a stream freed it gets again without a call of the device or an allocation on the heap, and what
// another freed after one wait, for as long as the other frees nothing more.
func TestWarmCalls(t *testing.T) {
	inner := drivertest.OpenSim(t, 256<<20)
	dev := fault.Wrap(inner)
	a := newAllocator(t, dev, bfc.Config{})
	s := dev.DefaultStream()
	other := drivertest.NewStream(t, dev)
	alloc := func(s driver.Stream, size int64) mem.Block {
		b, err := a.Alloc(s, size)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a.Free(alloc(s, 1000))
	alloc(s, 1<<20)
	calls := dev.Calls()
	if n := testing.AllocsPerRun(100, func() {
		x, y := alloc(s, 1000), alloc(s, 70_000)
		a.Free(x)
		a.Free(y, s)
	}); n != 0 {
		t.Errorf("%v heap allocations", n)
	}
	if n := dev.Calls() - calls; n != 0 {
		t.Errorf("one stream: %d calls of the device", n)
	}

	calls = dev.Calls()
	first := alloc(other, 1000)
	waiting := dev.Calls() - calls
	if waiting == 0 {
		t.Error("another stream did not wait")
	}
	calls = dev.Calls()
	for range 10 {
		alloc(other, 1000) // of what s freed too
	}
	a.Free(first)
	alloc(other, 1000)
	if n := dev.Calls() - calls; n != 0 {
		t.Errorf("another stream, which has waited: %d calls of the device", n)
	}
	a.Free(alloc(s, 100))
	calls = dev.Calls()
	if alloc(other, 100); dev.Calls() == calls {
		t.Error("the other stream did not wait for what was freed since")
	}
}

// A block that would have to wait for a stream that captures is passed over, or if there is no other, refused.
func TestBlocksOfACaptureArePassedOver(t *testing.T) {
	dev := drivertest.OpenSim(t, 256<<20)
	a := newAllocator(t, dev, bfc.Config{Limit: 1024, NoGrowth: true})
	s := dev.DefaultStream()
	captures := drivertest.NewStream(t, dev)
	var blocks []mem.Block
	for i := range 4 {
		stream := s
		if i == 0 {
			stream = captures
		}
		b, err := a.Alloc(stream, 256)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	a.Free(blocks[0])
	a.Free(blocks[2])
	if err := dev.Graphs().Begin(captures); err != nil {
		t.Fatal(err)
	}
	if b, err := a.Alloc(s, 256); err != nil || b.Ptr != blocks[2].Ptr {
		t.Errorf("%+v, %v: want the second free block", b, err)
	}
	if b, err := a.Alloc(s, 256); !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("%+v, %v: the only free block is in use by a capture", b, err)
	}
	if n := a.Stats().NumOOMs; n != 0 {
		t.Errorf("%d requests out of memory: there is room", n)
	}
	if _, err := dev.Graphs().End(captures); err != nil {
		t.Fatal(err)
	}
	if b, err := a.Alloc(s, 256); err != nil || b.Ptr != blocks[0].Ptr {
		t.Errorf("after the capture: %+v, %v", b, err)
	}
}

// A stream that is closed has done its work: no stream waits for it, nor for a new one of its number.
func TestClosedStreams(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		dev := drivertest.OpenSim(t, 256<<20)
		a := newAllocator(t, dev, bfc.Config{Limit: 4 << 20, NoGrowth: true, Virtual: virtual})
		s := dev.DefaultStream()
		open := func() driver.Stream {
			stream := drivertest.NewStream(t, dev)
			return stream
		}
		for _, freeFirst := range []bool{true, false} {
			gone := open()
			b, err := a.Alloc(gone, 1000)
			if err == nil && freeFirst {
				a.Free(b)
			}
			if err := errors.Join(err, gone.Close()); err != nil {
				t.Fatal(err)
			}
			next := open()
			if next.ID() != gone.ID() {
				t.Fatalf("stream %d after %d was closed", next.ID(), gone.ID())
			}
			if !freeFirst {
				other, err := a.Alloc(next, 1000)
				if err != nil {
					t.Fatal(err)
				}
				if err := next.Fill(other.Ptr, 1, other.Size); err != nil {
					t.Fatal(err)
				}
				a.Free(b, gone) // it is known to be closed: next is the one that is waited for
				a.Free(other)
			}
			if b, err = a.Alloc(s, 2000); err != nil {
				t.Fatalf("memory of a closed stream: %v", err)
			}
			if err := s.Fill(b.Ptr, 1, b.Size); err != nil {
				t.Fatal(err)
			}
			if err := next.Close(); err != nil {
				t.Fatal(err)
			}
			a.Free(b, next)
			if err := a.EmptyCache(); err != nil || a.Stats().ReservedBytes.All.Current != 0 {
				t.Fatalf("EmptyCache: %v, %d bytes are left", err, a.Stats().ReservedBytes.All.Current)
			}
		}
		if err := errors.Join(a.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A closed stream is not taken for the open one with the same number: it cannot wait for memory used by that one, and
// other streams still wait for it.
func TestAllocForAClosedStream(t *testing.T) {
	dev := drivertest.OpenSim(t, 256<<20)
	a := newAllocator(t, dev, bfc.Config{Limit: 4096, NoGrowth: true})
	var streams [2]driver.Stream // the old one, and the new one
	for i := range streams {
		s := drivertest.NewStream(t, dev)
		streams[i] = s
		if i == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if streams[0].ID() != streams[1].ID() {
		t.Fatal("the device did not give the number to the new stream")
	}
	b, err := a.Alloc(streams[1], 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := streams[1].Fill(b.Ptr, 1, b.Size); err != nil {
		t.Fatal(err)
	}
	a.Free(b)
	if b, err := a.Alloc(streams[0], 4096); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Alloc for the closed stream: %+v, %v", b, err)
		a.Free(b)
	}
	if b, err = a.Alloc(dev.DefaultStream(), 4096); err != nil {
		t.Fatal(err)
	}
	if err := dev.DefaultStream().Fill(b.Ptr, 2, b.Size); err != nil { // the device says if it is not ordered
		t.Error(err)
	}
	a.Free(b)
}

// Streams with high numbers are told apart: what each of many has freed it gets again without a call of the device, and
// another waits for it alone.
func TestDefect22_StreamsWithHighNumbersWaitForNoOthers(t *testing.T) {
	dev := drivertest.OpenSim(t, 256<<20)
	a := newAllocator(t, dev, bfc.Config{})
	streams := make([]driver.Stream, 100)
	blocks := make([]mem.Block, len(streams))
	alloc := func(i int) {
		t.Helper()
		b, err := a.Alloc(streams[i], int64(1000*(i+1)))
		if err != nil {
			t.Fatal(err)
		}
		if blocks[i].Ptr != 0 && b.Ptr != blocks[i].Ptr {
			t.Errorf("stream %d: a block at %#x, want %#x", i, uint64(b.Ptr), uint64(blocks[i].Ptr))
		}
		blocks[i] = b
	}
	for i := range streams {
		var err error
		if streams[i], err = dev.NewStream(driver.StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		alloc(i)
	}
	waits := func(what string, want int64, do func()) {
		t.Helper()
		before := dev.Calls()[sim.CallWaitFor].Count
		do()
		if n := dev.Calls()[sim.CallWaitFor].Count - before; n != want {
			t.Errorf("%s: %d waits, want %d", what, n, want)
		}
	}
	waits("each its own", 0, func() {
		for i := range streams {
			a.Free(blocks[i])
			alloc(i)
		}
	})
	waits("a block of three others", 3, func() {
		a.Free(blocks[98], streams[2], streams[70])
		streams[98] = streams[99]
		alloc(98)
	})
	if heap := testing.AllocsPerRun(100, func() { a.Free(blocks[97]); alloc(97) }); heap != 0 {
		t.Errorf("%v heap allocations", heap)
	}
}
