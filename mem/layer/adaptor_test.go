package layer_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/raw"
)

func TestAdaptorsForward(t *testing.T) {
	base := fake.NewPile(512)
	stack := layer.NewLeakTracker(layer.NewLimiter(base, 1<<30), layer.LeakTrackerOptions{})
	trimmer, ok := mem.Find[mem.Trimmer](stack)
	if !ok {
		t.Fatal("the Trimmer at the bottom is not found")
	}
	if err := trimmer.EmptyCache(); err != nil || base.Trims != 1 {
		t.Errorf("EmptyCache: %v, %d calls reached the bottom", err, base.Trims)
	}
	if l, ok := mem.Find[*layer.Limiter](stack); !ok || l.Limit() != 1<<30 {
		t.Error("the Limiter in the middle is not found")
	}
	b := fake.MustAlloc(t, stack, 512)
	stack.Free(b, fake.S1)
	if len(base.Used) != 1 || len(base.Used[0]) != 1 || base.Used[0][0] != fake.S1 {
		t.Errorf("the streams of Free arrived as %v", base.Used)
	}
	for name, a := range map[string]mem.Allocator{"track": stack, "limit": layer.NewLimiter(base, 1)} {
		if got := testkit.Panic(t, func() { a.Alloc(fake.S0, -1) }); got != "pile: negative size" {
			t.Errorf("%s: a negative size panics with %q", name, got)
		}
	}
}

func TestAdaptorsAllocateNothing(t *testing.T) {
	addressed := raw.NewAddressed(fake.NewPile(512))
	tests := []struct {
		name string
		pair func()
	}{
		{"limit", pairOf(layer.NewLimiter(fake.NewPile(512), 1<<30))},
		{"track", pairOf(layer.NewLeakTracker(fake.NewPile(512), layer.LeakTrackerOptions{}))},
		{"track without stacks", pairOf(layer.NewLeakTracker(fake.NewPile(512), layer.LeakTrackerOptions{Depth: -1, Freed: -1}))},
		{"by address", func() {
			p, _ := addressed.Alloc(fake.S0, 1000)
			addressed.Free(p)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := testing.AllocsPerRun(2000, pairOf(fake.NewPile(512)))
			if n := testing.AllocsPerRun(2000, tt.pair); n > base {
				t.Errorf("%v heap allocations for each pair of Alloc and Free, %v without the adaptor", n, base)
			}
		})
	}
}

func pairOf(a mem.Allocator) func() {
	return func() {
		b, _ := a.Alloc(fake.S0, 1000)
		a.Free(b)
	}
}
