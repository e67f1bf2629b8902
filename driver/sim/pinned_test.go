package sim

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

func (b *bench) host(size int64) []byte {
	b.t.Helper()
	mem, err := b.Pinned().AllocHost(size)
	b.ok(err)
	return mem
}

// Copies read and write page-locked memory when they are done, not when they are queued.
func TestPinnedMemoryIsUsedWhenTheCopyIsDone(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 2)
	p, s := b.Pinned(), b.s[1]
	early, late, out := b.host(3000), b.host(3000), b.host(3000)
	repeat(early, 1)
	repeat(late, 2)
	repeat(out, 3)
	b.ok(p.CopyInAsync(s, b.p, early))
	b.ok(p.CopyInAsync(s, b.p+3000, late))
	m := b.mark(s)
	b.ok(p.CopyOutAsync(s, out, b.p+2999))
	if n := b.Pending(1); n != 4 {
		t.Fatalf("%d pieces of work are pending, want 4", n)
	}
	repeat(late, 9) // too early
	b.Complete(m)
	repeat(early, 9) // in time
	if out[0] != 3 || b.in(0) != 1 || b.in(2999) != 1 || b.in(3000) != 9 {
		t.Errorf("%d, %d, %d, %d", out[0], b.in(0), b.in(2999), b.in(3000))
	}
	b.ok(s.Sync(context.Background()))
	if out[0] != 1 || out[1] != 9 || out[2999] != 9 {
		t.Errorf("copied out: %d, %d, %d", out[0], out[1], out[2999])
	}
}

func TestPinnedMemoryIsLimitedAndListed(t *testing.T) {
	b := newBench(t, Options{Pinned: 10_000}, 1)
	p := b.Pinned()
	first, own := b.host(4000), make([]byte, 5000)
	b.ok(p.Register(own))
	if got := b.Leaks().Pinned; !slices.Equal(got, []int64{4000, 5000}) {
		t.Errorf("leaks %v", got)
	}
	for name, f := range map[string]func() error{
		"AllocHost": func() error { _, err := p.AllocHost(1001); return err },
		"Register":  func() error { return p.Register(make([]byte, 1001)) },
	} {
		if err := f(); !errors.Is(err, driver.ErrNoMemory) {
			t.Errorf("%s beyond the limit: %v", name, err)
		}
	}
	for name, f := range map[string]func() error{
		"FreeHost of a part":                func() error { return p.FreeHost(first[:3999]) },
		"FreeHost of registered memory":     func() error { return p.FreeHost(own) },
		"FreeHost of nothing":               func() error { return p.FreeHost(nil) },
		"Unregister of allocated memory":    func() error { return p.Unregister(first) },
		"Register of what is page-locked":   func() error { return p.Register(own[100:200]) },
		"Register of nothing":               func() error { return p.Register(nil) },
		"copy from ordinary memory":         func() error { return p.CopyInAsync(b.s[0], b.p, make([]byte, 8)) },
		"copy to ordinary memory":           func() error { return p.CopyOutAsync(b.s[0], make([]byte, 8), b.p) },
		"copy to a device address too high": func() error { return p.CopyInAsync(b.s[0], b.p+1<<20-7, first[:8]) },
	} {
		if err := f(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !p.IsPinned(first[10:20]) || !p.IsPinned(own) || p.IsPinned(make([]byte, 1)) || p.IsPinned(nil) {
		t.Errorf("IsPinned is wrong")
	}
	b.ok(p.CopyInAsync(b.s[0], b.p, nil))
	b.ok(p.FreeHost(first))
	if !bytes.Equal(first, bytes.Repeat([]byte{poison}, 4000)) {
		t.Error("freed memory keeps its contents")
	}
	b.ok(p.Unregister(own))
	if own[0] == poison || b.Leaks().Pinned != nil {
		t.Errorf("%d, leaks %v", own[0], b.Leaks())
	}
	again := b.host(10_000)
	b.ok(b.Close())
	if got := b.Leaks(); !slices.Equal(got.Pinned, []int64{10_000}) || p.IsPinned(again) {
		t.Errorf("after Close: leaks %v", got)
	}
	if _, err := p.AllocHost(1); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// The contents of fresh memory follow from the seed, and the time from the cost model.
func TestPinnedMemoryIsDeterministic(t *testing.T) {
	var before []byte
	for range 2 {
		b := newBench(t, Options{Seed: 5}, 1)
		start := b.Now()
		fresh := b.host(1 << 20)
		if got, want := b.Now()-start, b.model.Calls[CallAllocHost].At(1<<20); got != want || want == 0 {
			t.Errorf("AllocHost took %v, want %v", got, want)
		}
		if other := b.host(1 << 20); bytes.Equal(fresh, other) {
			t.Error("two fresh allocations are alike")
		}
		if before != nil && !bytes.Equal(fresh, before) {
			t.Error("the same seed gave other bytes")
		}
		before = fresh
		start = b.Now()
		b.ok(b.Pinned().CopyInAsync(b.s[0], b.p, fresh))
		if got, want := b.Now()-start, b.model.Calls[CallCopyInAsync].At(1<<20); got != want || want == 0 {
			t.Errorf("CopyInAsync took %v, want %v", got, want)
		}
	}
}

// FreeHost waits for the copies that use the memory, and the host knows that they are done.
func TestFreeHostWaits(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 2)
	mem := b.host(100)
	repeat(mem, 7)
	b.ok(b.Pinned().CopyInAsync(b.s[1], b.p, mem))
	b.race(b.write(b.s[0], 0))
	b.ok(b.Pinned().FreeHost(mem))
	if b.in(99) != 7 {
		t.Errorf("the copy brought %d", b.in(99))
	}
	b.ok(b.write(b.s[0], 0))
}

func TestCopiesOfPinnedMemoryRace(t *testing.T) {
	b := newBench(t, Options{}, 2)
	mem := b.host(64)
	b.ok(b.Pinned().CopyInAsync(b.s[1], b.p, mem))
	if race := b.race(b.read(b.s[0], 0)); race.First.Call != CallCopyInAsync || !race.First.Write {
		t.Errorf("%v", race)
	}
	b.ok(b.s[0].WaitFor(b.s[1], b.mark(b.s[1])))
	b.ok(b.read(b.s[0], 0))
	if race := b.race(b.Pinned().CopyInAsync(b.s[1], b.p, mem)); race.First.Kernel != "read" {
		t.Errorf("%v", race)
	}
	b.ok(b.Pinned().CopyOutAsync(b.s[1], mem, b.p)) // two reads
}

func TestForeignStreamsAndCodeAreUnsupported(t *testing.T) {
	b := newBench(t, Options{}, 1)
	if _, err := b.NewStream(driver.StreamOptions{Foreign: 1}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a foreign stream: %v", err)
	}
	if _, err := b.Kernels().Load([]byte(".version 7.0")); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("code: %v", err)
	}
	if b.Peers() != nil || b.Sharing() != nil {
		t.Error("a simulated device has peers or is shared")
	}
}
