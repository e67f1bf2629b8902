package sim

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// in reads a byte as the host sees it now, without a call that would complete anything.
func (b *bench) in(at int) byte {
	got := make([]byte, 1)
	b.allocs.find(uint64(b.p)).value.load(got, uint64(at))
	return got[0]
}

func TestHeldStreamCompletesOneByOne(t *testing.T) {
	b := newBench(t, Options{}, 2)
	b.ok(b.s[1].Fill(b.p, 0, 64))
	b.Hold(1)
	var marks []driver.Mark
	for i := range 5 {
		b.ok(b.s[1].Fill(b.p, byte(i+1), 1))
		marks = append(marks, b.mark(b.s[1]))
	}
	if got := b.Pending(1); got != 10 {
		t.Errorf("%d pending, want 5 fills and 5 marks", got)
	}
	for i, m := range marks {
		for j, m := range marks {
			if ok, err := b.s[1].Reached(m); ok != (j < i) || err != nil {
				t.Errorf("after %d marks, mark %d: reached %v, %v", i, j, ok, err)
			}
		}
		b.Complete(m)
		if got := b.in(0); got != byte(i+1) {
			t.Errorf("after mark %d the byte is %d", i, got)
		}
	}
	b.ok(b.s[1].Fill(b.p, 9, 1))
	if got := b.in(0); got != 5 {
		t.Errorf("held, and yet the byte is %d", got)
	}
	if n := b.Advance(1, 3); n != 1 || b.in(0) != 9 {
		t.Errorf("Advance completed %d, and the byte is %d", n, b.in(0))
	}
	b.ok(b.s[1].Fill(b.p, 10, 1))
	b.Resume(1)
	if got := b.in(0); got != 10 {
		t.Errorf("after Resume the byte is %d", got)
	}
}

func TestMarksInARowAreReachedOneByOne(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 1)
	first, second := b.mark(b.s[0]), b.mark(b.s[0])
	b.Complete(first)
	one, err := b.s[0].Reached(first)
	b.ok(err)
	two, err := b.s[0].Reached(second)
	b.ok(err)
	if !one || two {
		t.Errorf("after the first was completed: %v, %v", one, two)
	}
}

func TestWaitsAreRespected(t *testing.T) {
	b := newBench(t, Options{}, 3)
	b.ok(b.s[0].Fill(b.p, 0, 64))
	b.ok(b.s[0].Sync(context.Background()))
	b.Hold(1)
	b.ok(b.s[1].Fill(b.p, 1, 1))
	b.ok(b.s[2].WaitFor(b.s[1], b.mark(b.s[1])))
	b.ok(b.s[2].Fill(b.p+1, 2, 1))
	b.ok(b.s[0].WaitFor(b.s[2], b.mark(b.s[2])))
	b.ok(b.s[0].Fill(b.p+2, 3, 1))
	if n := b.Advance(0, 5); n != 0 {
		t.Errorf("Advance completed %d pieces of work that wait", n)
	}
	if b.in(0) != 0 || b.in(1) != 0 || b.in(2) != 0 {
		t.Error("work completed before what it waits for")
	}
	if n := b.Advance(1, 2); n != 2 {
		t.Errorf("Advance completed %d", n)
	}
	if b.in(0) != 1 || b.in(1) != 2 || b.in(2) != 3 {
		t.Error("work did not complete after what it waited for")
	}
}

func TestForcedCompletionTakesWhatItWaitsFor(t *testing.T) {
	for name, force := range map[string]func(b *bench){
		"Sync":     func(b *bench) { b.ok(b.s[2].Sync(context.Background())) },
		"CopyOut":  func(b *bench) { b.ok(b.s[2].CopyOut(make([]byte, 1), b.p+1)) },
		"Close":    func(b *bench) { b.ok(b.s[2].Close()) },
		"Complete": func(b *bench) { b.Complete(b.mark(b.s[2])) },
		"Free": func(b *bench) {
			p, err := b.Alloc(1)
			b.ok(err)
			b.ok(b.Free(p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{Completion: OnDemand}, 3)
			b.ok(b.s[1].Fill(b.p, 1, 64))
			m := b.mark(b.s[1])
			b.ok(b.s[1].Fill(b.p+64, 1, 1))
			b.ok(b.s[2].WaitFor(b.s[1], m))
			b.ok(b.s[2].Copy(b.p+1024, b.p, 64))
			force(b)
			if got := b.in(1024); got != 1 {
				t.Errorf("the copied byte is %d", got)
			}
			if got := b.Pending(1); (got == 0) != (name == "Free") {
				t.Errorf("%d pending on the other stream", got)
			}
		})
	}
}

// TestLongChainsOfWaits completes two held streams that wait for each other 100,000 times.
func TestLongChainsOfWaits(t *testing.T) {
	b := newBench(t, Options{Unchecked: true, Completion: OnDemand}, 2)
	for range 50_000 {
		b.ok(b.s[0].WaitFor(b.s[1], b.mark(b.s[1])))
		b.ok(b.s[1].WaitFor(b.s[0], b.mark(b.s[0])))
	}
	b.ok(b.s[1].Sync(context.Background()))
	if b.Pending(1) != 0 {
		t.Error("work is pending after Sync")
	}
}

func TestSyncWithAnEndedContext(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 1)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	b.ok(b.s[0].Sync(ended)) // nothing to wait for
	b.ok(b.s[0].Fill(b.p, 1, 1))
	if err := b.s[0].Sync(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync: %v", err)
	}
	if b.Pending(0) != 1 {
		t.Error("a Sync that failed completed work")
	}
}

func TestKernelErrorsComeOutOnce(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 2)
	bad := errors.New("bad")
	fail := driver.Kernel{Name: "k", Func: func(driver.Memory) error { return bad }}
	b.ok(b.Kernels().Launch(b.s[1], fail))
	b.ok(b.s[0].Sync(context.Background()))
	err := b.s[1].Sync(context.Background())
	if e := (*driver.Error)(nil); !errors.Is(err, bad) || !errors.As(err, &e) || e.Call != "Kernels.Launch" {
		t.Errorf("Sync: %v", err)
	}
	b.ok(b.s[1].Sync(context.Background()))
	b.ok(b.Kernels().Launch(b.s[1], fail))
	if err := b.Close(); !errors.Is(err, bad) {
		t.Errorf("Close: %v", err)
	}
	b.ok(b.Close())
}

func TestKernelsSeeOnlyWhatTheyDeclare(t *testing.T) {
	b := newBench(t, Options{}, 1)
	b.ok(b.s[0].CopyIn(b.p, bytes.Repeat([]byte{1, 2, 3, 4}, 64)))
	at := func(off, n int) driver.Range { return driver.Range{Ptr: b.p + driver.Pointer(off), Size: int64(n)} }
	reads, writes := []driver.Range{at(0, 32), at(64, 32)}, []driver.Range{at(32, 32)}
	for _, c := range []struct {
		name string
		bad  bool
		run  func(driver.Memory) error
	}{
		{"load what it reads", false, func(m driver.Memory) error { return m.Load(make([]byte, 32), b.p) }},
		{"load what it writes", false, func(m driver.Memory) error { return m.Load(make([]byte, 32), b.p+32) }},
		{"load across all", false, func(m driver.Memory) error { return m.Load(make([]byte, 96), b.p) }},
		{"store what it writes", false, func(m driver.Memory) error { return m.Store(b.p+40, make([]byte, 8)) }},
		{"load past the end", true, func(m driver.Memory) error { return m.Load(make([]byte, 97), b.p) }},
		{"load before", true, func(m driver.Memory) error { return m.Load(make([]byte, 1), b.p-1) }},
		{"store what it only reads", true, func(m driver.Memory) error { return m.Store(b.p, []byte{9}) }},
		{"store past what it writes", true, func(m driver.Memory) error { return m.Store(b.p+60, make([]byte, 5)) }},
		{"ignore the error", true, func(m driver.Memory) error { _ = m.Store(b.p, []byte{9}); return nil }},
	} {
		reports := len(b.Reports())
		b.ok(b.Kernels().Launch(b.s[0], driver.Kernel{Name: c.name, Reads: reads, Writes: writes, Func: c.run}))
		err := b.s[0].Sync(context.Background())
		access := (*AccessError)(nil)
		if bad := errors.As(err, &access) && access.Kind == Undeclared; bad != c.bad || !bad && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := len(b.Reports()) - reports; (got == 1) != c.bad {
			t.Errorf("%s: %d reports", c.name, got)
		}
	}
	if b.in(0) != 1 || b.in(60) != 1 || b.in(41) != 0 {
		t.Error("a store that was refused has stored, or one that was not has not")
	}
}
