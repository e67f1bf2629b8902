package layer_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
)

const mib = 1 << 20

// A limit of 10 MiB lets 4 + 4 pass and refuses 3 more, without counting them.
func TestBehaviour82LimitRefusesAndCountsNothing(t *testing.T) {
	l := layer.NewLimiter(fake.NewPile(512), 10*mib)
	a, b := fake.MustAlloc(t, l, 4*mib), fake.MustAlloc(t, l, 4*mib)
	if l.Live() != 8*mib {
		t.Fatalf("live %d, want 8MiB", l.Live())
	}
	got, err := l.Alloc(fake.S0, 3*mib)
	var limited *mem.LimitError
	if !errors.Is(err, mem.ErrNoMemory) || !errors.As(err, &limited) {
		t.Fatalf("the error is %v", err)
	}
	if want := (mem.LimitError{Want: 3 * mib, Block: 3 * mib, Live: 8 * mib, Limit: 10 * mib}); *limited != want {
		t.Errorf("the error says %+v, want %+v", *limited, want)
	}
	if got != (mem.Block{}) || l.Live() != 8*mib {
		t.Errorf("a refusal gave %v and left %d live", got, l.Live())
	}
	testkit.Contains(t, err.Error(), "3.00MiB", "8.00MiB", "10.00MiB")
	c := fake.MustAlloc(t, l, 2*mib)
	l.Free(a)
	l.Free(b)
	l.Free(c)
	if l.Live() != 0 {
		t.Errorf("live %d after all was freed", l.Live())
	}
}

// The lower of two limits wins, and the outer one counts nothing for it.
func TestBehaviour82InnerLimitWins(t *testing.T) {
	inner := layer.NewLimiter(fake.NewPile(512), 4*mib)
	outer := layer.NewLimiter(inner, 10*mib)
	fake.MustAlloc(t, outer, 3*mib)
	_, err := outer.Alloc(fake.S0, 2*mib)
	var limited *mem.LimitError
	if !errors.As(err, &limited) || limited.Limit != 4*mib {
		t.Fatalf("the error is %v, want the limit of 4MiB", err)
	}
	if inner.Live() != 3*mib || outer.Live() != 3*mib {
		t.Errorf("live %d inside and %d outside, want 3MiB", inner.Live(), outer.Live())
	}
}

func TestLimitCountsWholeBlocks(t *testing.T) {
	base := fake.NewPile(2 * mib)
	l := layer.NewLimiter(base, 3*mib)
	b := fake.MustAlloc(t, l, 1)
	if l.Live() != 2*mib {
		t.Errorf("live %d, want the block's 2MiB", l.Live())
	}
	_, err := l.Alloc(fake.S0, 1)
	var limited *mem.LimitError
	if !errors.As(err, &limited) || limited.Block != 2*mib || limited.Want != 1 || limited.Live != 2*mib {
		t.Fatalf("the error is %+v", err)
	}
	if !strings.Contains(err.Error(), "a block of 2.00MiB") {
		t.Errorf("the message hides the size of the block: %v", err)
	}
	if len(base.Live) != 1 || l.Live() != 2*mib {
		t.Errorf("%d blocks live below and %d bytes counted after the refusal", len(base.Live), l.Live())
	}
	l.Free(b)
}

func TestLimitErrorsBelowCountNothing(t *testing.T) {
	base := fake.NewPile(512)
	l := layer.NewLimiter(base, 10*mib)
	base.Fail = driver.ErrLost
	if _, err := l.Alloc(fake.S0, mib); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the error is %v", err)
	}
	if l.Live() != 0 {
		t.Errorf("live %d", l.Live())
	}
	testkit.Panic(t, func() { l.Free(mem.Block{Ptr: 0x77, Size: 512}) })
	if l.Live() != 0 {
		t.Errorf("live %d after a free that the allocator below refused", l.Live())
	}
}

func TestLimitZeroAndHuge(t *testing.T) {
	l := layer.NewLimiter(fake.NewPile(512), 0)
	if b := fake.MustAlloc(t, l, 0); b != (mem.Block{}) {
		t.Errorf("zero bytes gave %v", b)
	}
	l.Free(mem.Block{})
	l.SetLimit(1<<63 - 1)
	b := fake.MustAlloc(t, l, 512)
	if _, err := l.Alloc(fake.S0, 1<<63-1); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a sum over 2^63 gives %v", err)
	}
	l.SetLimit(1) // below what is live: allowed, nothing more is allocated
	if _, err := l.Alloc(fake.S0, 1); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("over a lowered limit: %v", err)
	}
	l.Free(b)
	testkit.Contains(t, testkit.Panic(t, func() { layer.NewLimiter(fake.NewPile(1), -1) }), "layer: Limiter", "negative")
}

func TestLimitFreeOfWhatItNeverGave(t *testing.T) {
	base := fake.NewPile(512)
	l := layer.NewLimiter(base, mib)
	b := fake.MustAlloc(t, base, 512)
	testkit.Contains(t, testkit.Panic(t, func() { l.Free(b) }), "layer: Limiter", "512 bytes")
}

func TestLimitConcurrent(t *testing.T) {
	l := layer.NewLimiter(fake.NewPile(512), 8*512)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if b, err := l.Alloc(fake.S0, 700); err == nil {
					if live := l.Live(); live > 8*512 {
						t.Errorf("%d bytes live", live)
					}
					l.Free(b)
				}
			}
		})
	}
	wg.Wait()
	if l.Live() != 0 {
		t.Errorf("live %d at the end", l.Live())
	}
}

// Of all layers the lowest limit counts; 0 counts as a limit only where it can have no other meaning.
func TestLimitOf(t *testing.T) {
	dev := drivertest.OpenDevice(t, "sim:total=1GiB")
	unlimited := newArena(t, dev)
	tenant, err := layer.NewQuotas(unlimited, 1<<30).Tenant("anna", 1<<10, 1<<20)
	testkit.Must(t, err)
	if tenant.Name() != "anna" || tenant.Reserved() != 1<<10 || tenant.Limit() != 1<<20 {
		t.Errorf("%s has %d of %d bytes reserved", tenant.Name(), tenant.Reserved(), tenant.Limit())
	}
	noQuota, err := layer.NewQuotas(unlimited, 1<<30).Tenant("noQuota", 0, 0)
	testkit.Must(t, err)
	b, err := bfc.New(dev, bfc.Config{Limit: 8 << 20})
	testkit.Must(t, err)
	for name, c := range map[string]struct {
		a    mem.Allocator
		want int64
		ok   bool
	}{
		"pile": {fake.NewPile(1), 0, false}, "arena": {unlimited, 0, false}, "bfc": {layer.NewCounter(b), 8 << 20, true},
		"lower below": {layer.NewLimiter(layer.NewZeroer(tenant), 2<<20), 1 << 20, true},
		"lower above": {layer.NewZeroer(layer.NewLimiter(tenant, 1<<19)), 1 << 19, true},
		"nothing":     {layer.NewLimiter(fake.NewPile(1), 0), 0, true}, "no quota": {noQuota, 0, true},
	} {
		if n, ok := mem.LimitOf(c.a); n != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v; want %d, %v", name, n, ok, c.want, c.ok)
		}
	}
	testkit.Must(t, unlimited.(io.Closer).Close())
	testkit.Must(t, b.Close())
}
