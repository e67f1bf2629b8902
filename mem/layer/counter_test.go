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

func wantCounts(t testing.TB, what string, got layer.Counts, bytes, blocks layer.Count) {
	t.Helper()
	if want := (layer.Counts{Bytes: bytes, Blocks: blocks}); got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
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
	wantCounts(t, "half freed", m.Counts(), layer.Count{Current: 50 * mib, Peak: 100 * mib, Total: 100 * mib}, layer.Count{Current: 5, Peak: 10, Total: 10})
	for range 10 {
		blocks = append(blocks, fake.MustAlloc(t, m, 10*mib))
	}
	for _, b := range blocks[5:] {
		m.Free(b)
	}
	wantCounts(t, "all freed", m.Counts(), layer.Count{Peak: 150 * mib, Total: 200 * mib}, layer.Count{Peak: 15, Total: 20})
}

// What a frame frees of others is below zero, and no peak.
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
	wantCounts(t, "in the frame", m.Counts(), layer.Count{Current: -100 * mib}, layer.Count{Current: -10})
	m.Pop()
	wantCounts(t, "below", m.Counts(), layer.Count{Peak: 100 * mib, Total: 100 * mib}, layer.Count{Peak: 10, Total: 10})
}

func TestBehaviour84_StatisticsNest(t *testing.T) {
	m := layer.NewCounter(fake.NewPile(512))
	a := fake.MustAlloc(t, m, 4*mib)
	wantCounts(t, "interrupted", m.Push(), layer.Count{Current: 4 * mib, Peak: 4 * mib, Total: 4 * mib}, layer.Count{Current: 1, Peak: 1, Total: 1})
	b := fake.MustAlloc(t, m, 2*mib)
	m.Push()
	c := fake.MustAlloc(t, m, 8*mib)
	m.Free(c)
	m.Free(a)
	overall := layer.Count{Current: 2 * mib, Peak: 14 * mib, Total: 14 * mib}
	wantCounts(t, "overall", m.Overall(), overall, layer.Count{Current: 1, Peak: 3, Total: 3})
	wantCounts(t, "innermost", m.Pop(), layer.Count{Current: -4 * mib, Peak: 8 * mib, Total: 8 * mib}, layer.Count{Current: -1, Peak: 1, Total: 1})
	wantCounts(t, "middle", m.Pop(), layer.Count{Current: -2 * mib, Peak: 10 * mib, Total: 10 * mib}, layer.Count{Peak: 2, Total: 2})
	wantCounts(t, "outermost", m.Counts(), overall, layer.Count{Current: 1, Peak: 3, Total: 3})
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
					if panics(func() { tenant.Free(bad) }) == "" || panics(func() { m.Free(bad) }) == "" {
						t.Error("a bad free does not panic")
					}
				}
				tenant.Free(b)
				if panics(func() { tenant.Free(b) }) == "" {
					t.Error("a second free does not panic")
				}
			}
		})
	}
	wg.Wait()
	got := m.Counts()
	if got.Bytes.Current != 0 || got.Blocks.Current != 0 || got.Blocks.Total != 1200 || tenant.Live() != 0 {
		t.Errorf("at the end %+v, and the tenant has %d", got, tenant.Live())
	}
}
