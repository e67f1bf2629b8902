package metrics_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/metrics"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func closing(t testing.TB, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func open(t testing.TB) driver.Device {
	dev := must[driver.Device](t)(driver.Open("sim:total=1GiB"))
	closing(t, dev)
	return dev
}

// A world is a registry with a source of every kind, each with every layer, and some memory in use.
type world struct {
	metrics.Registry
	dev     driver.Device
	caching *caching.Allocator
	block   mem.Block // 4 MiB, through all layers
}

func newWorld(t testing.TB) *world {
	w := &world{dev: open(t)}
	cfg := caching.Default()
	cfg.MaxSplitSize = 128 << 20
	w.caching = must[*caching.Allocator](t)(caching.New(w.dev, cfg))
	magazines := magazine.New(w.caching, magazine.Options{})
	closing(t, magazines) // closes the layer below, too
	top := layer.NewCounter(layer.NewLimiter(layer.NewLimiter(magazines, 512<<20), 768<<20))
	w.block = must[mem.Block](t)(top.Alloc(w.dev.DefaultStream(), 4<<20))
	t.Cleanup(func() { top.Free(w.block) })
	for range 2 {
		top.Free(must[mem.Block](t)(top.Alloc(w.dev.DefaultStream(), 1000)))
	}

	now := time.Unix(0, 0)
	host := must[*pinned.Allocator](t)(pinned.New(w.dev, pinned.Config{Clock: func() time.Time {
		now = now.Add(1500 * time.Microsecond)
		return now
	}}))
	closing(t, host)
	host.Free(must[mem.Block](t)(host.Alloc(3000)))
	if err := host.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	page := must[mem.Block](t)(host.Alloc(5000))
	t.Cleanup(func() { host.Free(page) })

	tenant := must[*layer.Tenant](t)(layer.NewQuotas(w.caching, 64<<20).Tenant("anna", 1<<20, 8<<20))
	block := must[mem.Block](t)(tenant.Alloc(w.dev.DefaultStream(), 2048))
	t.Cleanup(func() { tenant.Free(block) })

	source := must[*metrics.Source](t)
	source(w.Add(metrics.Labels{Device: "sim:0", Allocator: "main", More: map[string]string{"model": "llama"}}, top))
	source(w.AddPinned(metrics.Labels{Device: "sim:0", Allocator: "host"}, host.Stats))
	source(w.AddTenant(metrics.Labels{Device: "sim:0", Allocator: "main"}, tenant))
	source(w.AddDevice(metrics.Labels{Device: "sim:0"}, w.dev.Available))
	return w
}

func pageOf(t testing.TB, w io.WriterTo) string {
	t.Helper()
	var b strings.Builder
	n, err := w.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("WriteTo: %d of %d bytes, %v", n, b.Len(), err)
	}
	return b.String()
}

// wants checks that each of these lines is in the page exactly once.
func wants(t testing.TB, page string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if n := strings.Count("\n"+page, "\n"+line+"\n"); n != 1 {
			t.Errorf("%d times on the page, want once:\n%s", n, line)
		}
	}
	if t.Failed() {
		t.Log("\n" + page)
	}
}
