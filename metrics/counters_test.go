package metrics_test

import (
	crand "crypto/rand"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/metrics"
)

// For every allocator, a metric of type counter never falls: Prometheus takes a fall for a reset and counts the entire
// value again. No gauge is negative, and the two pools add up to the total.
func TestFiguresOfEveryAllocator(t *testing.T) {
	expandable := caching.Default()
	expandable.ExpandableSegments = true
	for name, open := range map[string]func(driver.Device) (mem.Allocator, error){
		"arena":      func(d driver.Device) (mem.Allocator, error) { return arena.New(d, arena.Config{Size: 256 << 20}) },
		"bfc":        func(d driver.Device) (mem.Allocator, error) { return bfc.New(d, bfc.Config{}) },
		"caching":    func(d driver.Device) (mem.Allocator, error) { return caching.New(d, caching.Default()) },
		"direct":     func(d driver.Device) (mem.Allocator, error) { return direct.New(d, direct.Config{}), nil },
		"expandable": func(d driver.Device) (mem.Allocator, error) { return caching.New(d, expandable) },
		"magazine": func(d driver.Device) (mem.Allocator, error) {
			a, err := caching.New(d, caching.Default())
			return magazine.New(a, magazine.Options{}), err
		},
	} {
		t.Run(name, func(t *testing.T) { watch(t, name, open) })
	}
}

// watch scrapes after each of many random requests.
func watch(t *testing.T, name string, make func(driver.Device) (mem.Allocator, error)) {
	dev := open(t)
	a := must[mem.Allocator](t)(make(dev))
	closing(t, a.(io.Closer))
	var r metrics.Registry
	must[*metrics.Source](t)(r.Add(metrics.Labels{Device: "sim:0", Allocator: name}, layer.NewCounter(a)))
	reporter, _ := mem.Find[mem.StatsReporter](a)

	seed := [32]byte([]byte(crand.Text() + crand.Text())[:32])
	t.Logf("seed %q", seed)
	rng := rand.New(rand.NewChaCha8(seed))
	streams := []driver.Stream{dev.DefaultStream(), must[driver.Stream](t)(dev.NewStream(driver.StreamOptions{}))}
	var live []mem.Block
	t.Cleanup(func() {
		for _, b := range live {
			a.Free(b)
		}
	})
	counters := map[metrics.Sample]int64{}
	for range 1000 {
		switch k := rng.IntN(100); {
		case k < 50:
			live = append(live, must[mem.Block](t)(a.Alloc(streams[rng.IntN(2)], 1+rng.Int64N(1<<(8+rng.IntN(14))))))
		case k == 50:
			if trimmer, ok := mem.Find[mem.Trimmer](a); ok {
				if err := trimmer.EmptyCache(); err != nil {
					t.Fatal(err)
				}
			}
		case len(live) > 0:
			i, last := rng.IntN(len(live)), len(live)-1
			a.Free(live[i], streams[:rng.IntN(3)]...)
			live[i] = live[last]
			live = live[:last]
		}
		samples, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			v := s.Value
			if s.Value = 0; v < counters[s] {
				t.Fatalf("%s %v fell from %d to %d", s.Metric.Name, s.Label, counters[s], v)
			}
			if s.Metric.Type == metrics.Counter {
				counters[s] = v
			}
		}
		st := reporter.Stats()
		for _, q := range st.Arrays() {
			if p := q.Array; p.SmallPool.Current+p.LargePool.Current != p.All.Current {
				t.Fatalf("%s: %+v", q.Name, p)
			}
		}
	}
}
