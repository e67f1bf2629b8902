package pinned_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

func TestArrow(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	x := pinned.Arrow(a)
	zero := func(p []byte) bool { return !slices.ContainsFunc(p, func(c byte) bool { return c != 0 }) }
	var held [][]byte
	for _, size := range []int{1, 63, 64, 100, 4096, 5000, 5000} { // sim aligns small memory to 8 bytes only
		p := x.Allocate(size)
		if len(p) != size || at(p)%64 != 0 || !zero(p) {
			t.Errorf("Allocate(%d) is %d bytes at %#x, zero: %t", size, len(p), at(p), zero(p))
		}
		fill(p[:cap(p)], 7)
		held = append(held, p)
	}
	for _, p := range held {
		x.Free(p)
	}
	for _, size := range []int{100, 5000} { // of what was used before
		p := x.Allocate(size)
		if !zero(p) {
			t.Errorf("Allocate(%d) is not zero", size)
		}
		x.Free(p)
	}
	want(t, a, "active_requests.current", 0)
	closeAll(t, a, d)
}

func TestArrowZeroSize(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	x := pinned.Arrow(a)
	p := x.Allocate(0)
	if p == nil || len(p) != 0 {
		t.Errorf("Allocate(0) = %v, want empty and not nil", p)
	}
	x.Free(p)
	x.Free(nil)
	want(t, a, "num_host_alloc", 0)
	p = x.Reallocate(100, p)
	if len(p) != 100 {
		t.Errorf("%d bytes", len(p))
	}
	p = x.Reallocate(0, p)
	if len(p) != 0 {
		t.Errorf("%d bytes, want none", len(p))
	}
	want(t, a, "active_requests.current", 1)
	x.Free(p) // empty, but still of a block
	want(t, a, "active_requests.current", 0)
	testkit.Contains(t, testkit.Panic(t, func() { x.Allocate(-1) }), "Alloc of -1 bytes")
	closeAll(t, a, d)
}

func TestArrowReallocate(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	x := pinned.Arrow(a)
	p := x.Allocate(1000)
	fill(p[:cap(p)], 1)
	check := func(p []byte, size, ones int) {
		t.Helper()
		if len(p) != size || at(p)%64 != 0 {
			t.Fatalf("%d bytes at %#x, want %d", len(p), at(p), size)
		}
		for i, c := range p {
			if want := byte(1); i >= ones && c != 0 || i < ones && c != want {
				t.Fatalf("byte %d of %d is %d", i, size, c)
			}
		}
	}
	p = x.Reallocate(1010, p)
	check(p, 1010, 1000)
	p = x.Reallocate(9000, p)
	check(p, 9000, 1000)
	want(t, a, "active_requests.current", 1)
	p = x.Reallocate(500, p)
	check(p, 500, 500)
	p = x.Reallocate(9000, p)
	check(p, 9000, 500)
	x.Free(p[100:200]) // a part will do
	want(t, a, "active_requests.current", 0)
	closeAll(t, a, d)
}

func TestArrowFailures(t *testing.T) {
	d := newDeviceOf(sim.Options{Pinned: 4096})
	a := open(t, d, pinned.Config{})
	x := pinned.Arrow(a)
	func() {
		defer func() {
			if err, ok := recover().(error); !ok || !errors.Is(err, mem.ErrNoMemory) {
				t.Errorf("out of memory: panicked with %v", err)
			}
		}()
		x.Allocate(8192)
	}()
	p := x.Allocate(2048)
	fill(p, 1)
	testkit.Contains(t, testkit.Panic(t, func() { // what was there stays
		defer func() {
			if recover() != nil {
				panic("no room")
			}
		}()
		x.Reallocate(8192, p)
	}), "no room")
	if p[2047] != 1 {
		t.Error("a Reallocate that failed lost the bytes")
	}
	testkit.Contains(t, testkit.Panic(t, func() { x.Free(make([]byte, 10)) }), "in no live block")
	x.Free(p)
	testkit.Contains(t, testkit.Panic(t, func() { x.Free(p) }), "in no live block")
	closeAll(t, a, d)
}

// An Arrow buffer is recorded by its bytes.
func TestArrowRecord(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	x := pinned.Arrow(a)
	s := d.stream(t)
	d.hold(s)
	p := x.Allocate(5000)
	b, ok := a.Find(p)
	if !ok {
		t.Fatal("not found")
	}
	d.work(t, s)
	piece(t, a, b, s)
	x.Free(p)
	if reused(t, a, b) {
		t.Error("reused while a stream uses it")
	}
	d.resume(s)
	closeAll(t, a, d)
}
