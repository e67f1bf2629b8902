package sim

import (
	"context"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestAccessErrorsSayWhoWhatAndWhy(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 2)
	store := func(m driver.Memory) error { return m.Store(b.p+8, []byte{1}) }
	b.ok(b.Kernels().Launch(b.s[1], driver.Kernel{Name: "axpy", Reads: []driver.Range{{Ptr: b.p, Size: 64}}, Func: store}))
	for _, c := range []struct {
		err  error
		want string
	}{
		{b.s[1].Fill(b.p+1<<20-1, 0, 2), "driver: Stream.Fill: out of bounds: write of [0x7f00000fffff, +2) by " +
			"Stream.Fill on stream 1 (call 4): the allocation [0x7f0000000000, +1048576) ends before"},
		{b.s[1].CopyOut(make([]byte, 4), 64), "driver: Stream.CopyOut: not allocated: read of [0x40, +4) by Stream.CopyOut " +
			"on stream 1 (call 5): nothing is allocated there"},
		{b.s[1].Sync(context.Background()), `driver: Kernels.Launch: not declared: write of [0x7f0000000008, +1) by kernel ` +
			`"axpy" on stream 1 (call 3): of 0x7f0000000008 the kernel did not say so: it is not in Writes (kernel "axpy" on ` +
			`stream 1)`},
	} {
		if got := fmt.Sprint(c.err); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestBugsOfTheCallerPanic checks misuses for which the conformance suite requires no particular outcome.
func TestBugsOfTheCallerPanic(t *testing.T) {
	b := newBench(t, Options{}, 2)
	m := b.mark(b.s[1])
	var kept driver.Memory
	keep := func(m driver.Memory) error { kept = m; return nil }
	b.ok(b.Kernels().Launch(b.s[0], driver.Kernel{Name: "keep", Func: keep}))
	ahead := driver.Mark{Stream: 1, Tick: m.Tick + 1}
	for name, f := range map[string]func(){
		"Alloc(0)":                           func() { _, _ = b.Alloc(0) },
		"Reached of another stream's mark":   func() { _, _ = b.s[0].Reached(m) },
		"Reached of a mark that never was":   func() { _, _ = b.s[1].Reached(ahead) },
		"WaitFor with another stream's mark": func() { _ = b.s[0].WaitFor(b.s[0], m) },
		"Complete of a mark that never was":  func() { b.Complete(ahead) },
		"Hold of no stream":                  func() { b.Hold(99) },
		"a kernel's memory after its end":    func() { _ = kept.Load(make([]byte, 1), b.p) },
	} {
		testkit.WantPanic(t, name, "driver/sim: ", f)
	}
	b.ok(b.s[0].Fill(b.p, 1, 1)) // no lock was left behind
}

func TestNames(t *testing.T) {
	for c := range NumCalls {
		if s := c.String(); s == "" || s == "unknown" {
			t.Errorf("call %d is %q", c, s)
		}
	}
	if NumCalls.String() != "unknown" || AccessKind(99).String() != "unknown" || NotMapped.String() != "not mapped" {
		t.Errorf("names %v, %v, %v", NumCalls, AccessKind(99), NotMapped)
	}
}

// TestOldFreesAreForgotten frees more than the device remembers.
func TestOldFreesAreForgotten(t *testing.T) {
	b := newBench(t, Options{}, 1)
	var gone []driver.Pointer
	for range freedKept + 10 {
		p, err := b.Alloc(512)
		b.ok(err)
		gone = append(gone, p)
	}
	for _, p := range gone {
		b.ok(b.Free(p))
	}
	for i, p := range gone {
		want := UseAfterFree
		if i < 10 {
			want = NotAllocated
		}
		if kind, _ := b.explain(uint64(p)); kind != want {
			t.Fatalf("access to free %d of %d: %v, want %v", i, len(gone), kind, want)
		}
	}
}
