package otel_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/metrics"
	"github.com/ashlar-go/ashlar/metrics/otel"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// A rig is a registry behind a provider, with one source whose statistics the test sets.
type rig struct {
	t          *testing.T
	registry   metrics.Registry
	stats      mem.Stats
	fail       bool
	reader     *sdk.ManualReader
	unregister func() error
}

func newRig(t *testing.T, options ...sdk.ManualReaderOption) *rig {
	g := &rig{t: t, reader: sdk.NewManualReader(options...)}
	provider := sdk.NewMeterProvider(sdk.WithReader(g.reader))
	t.Cleanup(func() { _ = provider.Shutdown(t.Context()) })
	g.add("main")
	unregister, err := otel.Register(provider.Meter("test"), &g.registry)
	if err != nil {
		t.Fatal(err)
	}
	g.unregister = unregister
	return g
}

func (g *rig) add(allocator string) *metrics.Source {
	g.t.Helper()
	s, err := g.registry.AddStats(metrics.Labels{Device: "sim:0", Allocator: allocator}, func() mem.Stats {
		if g.fail {
			panic("broken")
		}
		return g.stats
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

func (g *rig) collect() map[string]metricdata.Metrics {
	g.t.Helper()
	var rm metricdata.ResourceMetrics
	if err := g.reader.Collect(context.Background(), &rm); err != nil {
		g.t.Fatal(err)
	}
	byName := map[string]metricdata.Metrics{}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// ooms collects, and returns the one point of a counter, or nil.
func (g *rig) ooms() *metricdata.DataPoint[int64] {
	g.t.Helper()
	m, ok := g.collect()["ashlar.memory.ooms"]
	if !ok {
		return nil
	}
	sum := m.Data.(metricdata.Sum[int64])
	if !sum.IsMonotonic || len(sum.DataPoints) != 1 {
		g.t.Fatalf("ooms: %+v", sum)
	}
	return &sum.DataPoints[0]
}

func TestInstruments(t *testing.T) {
	g := newRig(t)
	g.stats.AllocatedBytes.SmallPool.Increase(512)
	g.stats.AllocatedBytes.LargePool.Increase(2 << 20)
	g.stats.AllocatedBytes.All.Increase(2<<20 + 512)
	p := pinned.Stats{HostAllocTime: pinned.Duration{Total: 1_500_000, Max: 1_500_000, Min: 1, Count: 1}}
	if _, err := g.registry.AddPinned(metrics.Labels{Device: "sim:0", Allocator: "host", More: map[string]string{"job_name": "x"}},
		func() pinned.Stats { return p }); err != nil {
		t.Fatal(err)
	}
	got := g.collect()

	allocated := got["ashlar.memory.allocated"]
	sum, ok := allocated.Data.(metricdata.Sum[int64])
	if !ok || sum.IsMonotonic || allocated.Unit != "By" || len(sum.DataPoints) != 2 {
		t.Fatalf("allocated: %+v", allocated)
	}
	want := attribute.NewSet(attribute.String("device", "sim:0"), attribute.String("allocator", "main"), attribute.String("pool", "large"))
	found := false
	for _, d := range sum.DataPoints {
		if d.Attributes.Equals(&want) {
			found = d.Value == 2<<20
		}
	}
	if !found {
		t.Errorf("no point %v with 2 MiB in %+v", want.Encoded(attribute.DefaultEncoder()), sum.DataPoints)
	}
	if peak, ok := got["ashlar.memory.allocated_peak"].Data.(metricdata.Gauge[int64]); !ok || len(peak.DataPoints) != 3 {
		t.Errorf("a peak is a gauge of the pools and all: %+v", got["ashlar.memory.allocated_peak"])
	}
	seconds, ok := got["ashlar.pinned.driver_time"].Data.(metricdata.Sum[float64])
	if !ok || !seconds.IsMonotonic || len(seconds.DataPoints) != 2 {
		t.Fatalf("seconds: %+v", got["ashlar.pinned.driver_time"])
	}
	total := 0.0
	for _, d := range seconds.DataPoints {
		total += d.Value
	}
	if total != 1.5 {
		t.Errorf("%g s, want 1.5", total)
	}
	longest, ok := got["ashlar.pinned.driver_time_max"].Data.(metricdata.Gauge[float64])
	if !ok || len(longest.DataPoints) != 2 || longest.DataPoints[0].Value+longest.DataPoints[1].Value != 1.5 {
		t.Errorf("the longest: %+v", got["ashlar.pinned.driver_time_max"])
	}
	if v, _ := seconds.DataPoints[0].Attributes.Value("job_name"); v.AsString() != "x" {
		t.Errorf("a label of its own is missing: %+v", seconds.DataPoints[0])
	}
}

// A counter does not fall when it is reset, or when another source with the same labels begins at 0.
func TestCounterThatIsReset(t *testing.T) {
	g := newRig(t)
	for _, step := range []struct{ now, want int64 }{{5, 5}, {7, 7}, {2, 9}, {2, 9}, {0, 9}, {3, 12}} {
		g.stats.NumOOMs = step.now
		if got := g.ooms().Value; got != step.want {
			t.Errorf("at %d: %d, want %d", step.now, got, step.want)
		}
	}
	g.fail = true
	for range 2 {
		if got := g.ooms().Value; got != 12 {
			t.Errorf("while the source fails: %d, want 12", got)
		}
	}
}

func TestCounterOfANewSource(t *testing.T) {
	g := newRig(t)
	second := g.add("second")
	g.stats.NumOOMs = 4
	count := func() (of int64, n int) {
		for _, d := range g.collect()["ashlar.memory.ooms"].Data.(metricdata.Sum[int64]).DataPoints {
			if v, _ := d.Attributes.Value("allocator"); v.AsString() == "second" {
				of = d.Value
			}
			n++
		}
		return of, n
	}
	count()
	second.Remove()
	second = g.add("second")
	g.stats.NumOOMs = 1
	if got, n := count(); got != 5 || n != 2 {
		t.Errorf("the successor of a source at once: %d of %d, want 4 + 1 of 2", got, n)
	}
	second.Remove()
	if _, n := count(); n != 1 {
		t.Errorf("%d counters of one source", n)
	}
	g.add("second")
	if got, n := count(); got != 1 || n != 2 {
		t.Errorf("the successor of a source after a collection without one: %d of %d, want 1 of 2", got, n)
	}
}

// With delta temporality, a failing source exports no point that is not a delta, and the next point does not count
// everything again.
func TestDeltas(t *testing.T) {
	g := newRig(t, sdk.WithTemporalitySelector(func(sdk.InstrumentKind) metricdata.Temporality { return metricdata.DeltaTemporality }))
	g.stats.NumOOMs = 5
	if got := g.ooms().Value; got != 5 {
		t.Errorf("first %d, want 5", got)
	}
	g.fail = true
	for range 2 {
		if got := g.ooms().Value; got != 0 {
			t.Errorf("while it fails %d, want 0", got)
		}
	}
	g.fail, g.stats.NumOOMs = false, 8
	if got := g.ooms().Value; got != 3 {
		t.Errorf("then %d, want 3", got)
	}
	g.stats.NumOOMs = 1
	if got := g.ooms().Value; got != 1 {
		t.Errorf("after a reset %d, want 1", got)
	}
}

// Two readers that collect at the same time see a counter that only rises, and neither takes the other's value for a
// reset.
func TestTwoReaders(t *testing.T) {
	readers := []*sdk.ManualReader{sdk.NewManualReader(), sdk.NewManualReader()}
	provider := sdk.NewMeterProvider(sdk.WithReader(readers[0]), sdk.WithReader(readers[1]))
	var registry metrics.Registry
	var ooms atomic.Int64
	if _, err := registry.AddStats(metrics.Labels{Device: "sim:0", Allocator: "main"}, func() mem.Stats {
		return mem.Stats{NumOOMs: ooms.Add(1)}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := otel.Register(provider.Meter("test"), &registry); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, reader := range readers {
		wg.Go(func() {
			last := int64(0)
			for range 100 {
				var rm metricdata.ResourceMetrics
				if err := reader.Collect(context.Background(), &rm); err != nil {
					t.Error(err)
					return
				}
				for _, m := range rm.ScopeMetrics[0].Metrics {
					if m.Name == "ashlar.memory.ooms" {
						now := m.Data.(metricdata.Sum[int64]).DataPoints[0].Value
						if now <= last || now > 200 {
							t.Errorf("%d after %d, of 200 at most", now, last)
						}
						last = now
					}
				}
			}
		})
	}
	wg.Wait()
}

// A failing source does not withhold the values of the others.
func TestSourceThatFails(t *testing.T) {
	g := newRig(t)
	if _, err := g.registry.AddDevice(metrics.Labels{Device: "sim:0"},
		func() (int64, int64, error) { return 0, 0, errors.New("lost") }); err != nil {
		t.Fatal(err)
	}
	got := g.collect()
	if _, ok := got["ashlar.device.free"]; ok {
		t.Error("a value of a source that failed")
	}
	if _, ok := got["ashlar.memory.allocated"]; !ok {
		t.Error("the other source is missing")
	}
	values := map[int64]int{}
	for _, d := range got["ashlar.scrape.success"].Data.(metricdata.Gauge[int64]).DataPoints {
		values[d.Value]++
	}
	if values[0] != 1 || values[1] != 1 {
		t.Errorf("success: %v, want one of each", values)
	}
}

func TestUnregister(t *testing.T) {
	g := newRig(t)
	if g.ooms() == nil {
		t.Fatal("nothing before")
	}
	if err := g.unregister(); err != nil {
		t.Fatal(err)
	}
	if got := g.collect(); len(got) != 0 {
		t.Errorf("%d metrics after", len(got))
	}
}

// The names in the table for people are those of Name, with their units, and no two metrics have one.
func TestNames(t *testing.T) {
	text, err := os.ReadFile("../names.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			rows[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[3])
		}
	}
	seen := map[string]bool{}
	for _, m := range metrics.Metrics() {
		name, unit := otel.Name(m)
		if seen[name] {
			t.Errorf("%s is the name of two metrics", name)
		}
		seen[name] = true
		want := "`" + name + "`"
		if unit != "" {
			want += " " + unit
		}
		if got := rows[m.Name]; got != want {
			t.Errorf("names.md has %q for %s, want %q", got, m.Name, want)
		}
	}
}
