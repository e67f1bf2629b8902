package layer_test

import (
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
)

func wantUsage(t testing.TB, what string, got mem.Usage, bytes, blocks mem.Stat, largest int64) {
	t.Helper()
	if want := (mem.Usage{Bytes: bytes, Blocks: blocks, Largest: largest}); got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// stat has the current and highest values, and the sum of all increases.
func stat(current, peak, allocated int64) mem.Stat {
	return mem.Stat{Current: current, Peak: peak, Allocated: allocated, Freed: allocated - current}
}

func TestBehaviour84_StatisticsCountCurrentPeakAndTotal(t *testing.T) {
	m := layer.NewCounter(fake.NewPile(512))
	var blocks []mem.Block
	for range 10 {
		blocks = append(blocks, fake.MustAlloc(t, m, 10*mib))
	}
	for _, b := range blocks[:5] {
		m.Free(b)
	}
	wantUsage(t, "half freed", m.Usage(), stat(50*mib, 100*mib, 100*mib), stat(5, 10, 10), 10*mib)
	for range 10 {
		blocks = append(blocks, fake.MustAlloc(t, m, 10*mib))
	}
	for _, b := range blocks[5:] {
		m.Free(b)
	}
	wantUsage(t, "all freed", m.Usage(), stat(0, 150*mib, 200*mib), stat(0, 15, 20), 10*mib)
}

// A frame that frees other frames' blocks counts below zero, which is no peak.
func TestBehaviour84_StatisticsOfForeignFrees(t *testing.T) {
	m := layer.NewCounter(fake.NewPile(512))
	var blocks []mem.Block
	for range 10 {
		blocks = append(blocks, fake.MustAlloc(t, m, 10*mib))
	}
	m.Push()
	for _, b := range blocks {
		m.Free(b)
	}
	wantUsage(t, "in the frame", m.Usage(), stat(-100*mib, 0, 0), stat(-10, 0, 0), 0)
	m.Pop()
	wantUsage(t, "below", m.Usage(), stat(0, 100*mib, 100*mib), stat(0, 10, 10), 10*mib)
}

func TestBehaviour84_StatisticsNest(t *testing.T) {
	m := layer.NewCounter(fake.NewPile(512))
	a := fake.MustAlloc(t, m, 4*mib)
	wantUsage(t, "interrupted", m.Push(), stat(4*mib, 4*mib, 4*mib), stat(1, 1, 1), 4*mib)
	b := fake.MustAlloc(t, m, 2*mib)
	m.Push()
	c := fake.MustAlloc(t, m, 8*mib)
	m.Free(c)
	m.Free(a)
	overall := stat(2*mib, 14*mib, 14*mib)
	wantUsage(t, "overall", m.Overall(), overall, stat(1, 3, 3), 8*mib)
	wantUsage(t, "innermost", m.Pop(), stat(-4*mib, 8*mib, 8*mib), stat(-1, 1, 1), 8*mib)
	wantUsage(t, "middle", m.Pop(), stat(-2*mib, 10*mib, 10*mib), stat(0, 2, 2), 8*mib)
	wantUsage(t, "outermost", m.Usage(), overall, stat(1, 3, 3), 8*mib)
	m.Free(b)
	testkit.Contains(t, testkit.Panic(t, func() { m.Pop() }), "layer: Counter: Pop without a Push")
}

// A wrong size, a foreign block and requests for nothing, all at once, leave no count below zero.
func TestBehaviour85_StatisticsAndQuotasNeverUnderflow(t *testing.T) {
	m := layer.NewCounter(fake.NewPile(512))
	tenant, err := layer.NewQuotas(m, 1<<30).Tenant("one", 0, 1<<30)
	testkit.Must(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 300 {
				zero, _ := tenant.Alloc(fake.S0, 0)
				tenant.Free(zero)
				b, err := tenant.Alloc(fake.S0, 700)
				if err != nil {
					t.Error(err)
					return
				}
				wrong := b
				wrong.Size /= 2
				for _, bad := range []mem.Block{wrong, {Ptr: driver.Pointer(0x77), Size: 512}} {
					if testkit.PanicText(func() { tenant.Free(bad) }) == "" || testkit.PanicText(func() { m.Free(bad) }) == "" {
						t.Error("a bad free does not panic")
					}
				}
				tenant.Free(b)
				if testkit.PanicText(func() { tenant.Free(b) }) == "" {
					t.Error("a second free does not panic")
				}
			}
		})
	}
	wg.Wait()
	got := m.Usage()
	if got.Bytes.Current != 0 || got.Blocks.Current != 0 || got.Blocks.Allocated != 1200 || tenant.Live() != 0 {
		t.Errorf("at the end %+v, and the tenant has %d", got, tenant.Live())
	}
}
