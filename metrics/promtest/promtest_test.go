// Package promtest checks the output of package metrics with independent implementations: Prometheus's own parser of
// the text format and, for the names, OpenTelemetry's exporter to Prometheus. It is a separate module, so that no other
// module depends on them:
//
//	cd metrics/promtest && go test ./...
package promtest

import (
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/metrics"
	"github.com/ashlar-go/ashlar/metrics/otel"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

const awkward = "a\\b\"c\nd {e=\"f\"}, # ö"

// registry returns a registry with every kind of source, so that every metric is exported, and a failing source.
func registry(t *testing.T) *metrics.Registry {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dev, err := driver.Open("sim:total=1GiB")
	check(err)
	cfg := caching.Default()
	cfg.MaxSplitSize = 128 << 20
	below, err := caching.New(dev, cfg)
	check(err)
	a := layer.NewCounter(layer.NewLimiter(magazine.New(below, magazine.Options{}), 512<<20))
	b, err := a.Alloc(dev.DefaultStream(), 3<<20)
	check(err)
	t.Cleanup(func() {
		a.Free(b)
		if err := below.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	times := pinned.Duration{Total: 1_234_567, Max: 1_000_000, Min: 3, Count: 9}
	r := &metrics.Registry{}
	_, err = r.Add(metrics.Labels{Device: "sim:0", Allocator: "main", More: map[string]string{"model": awkward}}, a)
	check(err)
	_, err = r.AddPinned(metrics.Labels{Device: "sim:0", Allocator: "host"}, func() pinned.Stats {
		return pinned.Stats{HostAllocTime: times, HostFreeTime: times}
	})
	check(err)
	tenant, err := layer.NewQuotas(below, 10).Tenant("anna", 4, 9)
	check(err)
	_, err = r.AddTenant(metrics.Labels{Device: "sim:0", Allocator: "main"}, tenant)
	check(err)
	_, err = r.AddDevice(metrics.Labels{Device: "sim:0"}, dev.Available)
	check(err)
	_, err = r.AddStats(metrics.Labels{Device: "sim:0", Allocator: "broken"}, func() mem.Stats { panic("broken") })
	check(err)
	return r
}

// A family has the content of a Prometheus metric family, without the details in which the two ways of obtaining it
// differ.
type family struct {
	kind   dto.MetricType
	help   string
	series map[string]float64
}

func families(t *testing.T, of []*dto.MetricFamily) map[string]family {
	t.Helper()
	all := map[string]family{}
	for _, f := range of {
		got := family{f.GetType(), f.GetHelp(), map[string]float64{}}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if !strings.HasPrefix(l.GetName(), "otel_scope_") {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			slices.Sort(labels)
			key := strings.Join(labels, ",")
			if _, twice := got.series[key]; twice {
				t.Errorf("%s has two series %s", f.GetName(), key)
			}
			got.series[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		all[f.GetName()] = got
	}
	return all
}

// parsed reads the page as Prometheus's libraries do.
func parsed(t *testing.T, r *metrics.Registry) map[string]family {
	t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if got := expfmt.ResponseFormat(w.Result().Header); got.FormatType() != expfmt.TypeTextPlain {
		t.Errorf("the content type %q is %q to Prometheus", w.Result().Header.Get("Content-Type"), got)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	byName, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	var all []*dto.MetricFamily
	for _, f := range byName {
		all = append(all, f)
	}
	return families(t, all)
}

// Prometheus's parser reads from the page exactly the values of Gather.
func TestText(t *testing.T) {
	r := registry(t)
	got := parsed(t, r)
	samples, err := r.Gather()
	if err == nil {
		t.Error("a source that panics is no error")
	}
	n := 0
	for _, s := range samples {
		f, ok := got[s.Metric.Name]
		if !ok || f.help != s.Metric.Help || f.kind != map[metrics.Type]dto.MetricType{
			metrics.Gauge: dto.MetricType_GAUGE, metrics.Counter: dto.MetricType_COUNTER,
		}[s.Metric.Type] {
			t.Errorf("%s: %v, %q", s.Metric.Name, f.kind, f.help)
			continue
		}
		var labels []string
		for _, l := range s.Source.Labels() {
			labels = append(labels, l.Name+"="+l.Value)
		}
		if s.Label.Name != "" {
			labels = append(labels, s.Label.Name+"="+s.Label.Value)
		}
		slices.Sort(labels)
		v, ok := f.series[strings.Join(labels, ",")]
		if !ok || math.Abs(v-s.Float()) > 1e-9 {
			t.Errorf("%s%q is %g, want %g", s.Metric.Name, labels, v, s.Float())
		}
	}
	for _, f := range got {
		n += len(f.series)
	}
	if n != len(samples) || len(got) != len(metrics.Metrics()) {
		t.Errorf("%d samples of %d metrics, want %d of %d", n, len(got), len(samples), len(metrics.Metrics()))
	}
}

// OpenTelemetry's exporter to Prometheus yields the same names, types, labels and values as the page.
func TestOpenTelemetryToPrometheus(t *testing.T) {
	r := registry(t)
	to := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(to), exporter.WithoutTargetInfo())
	if err != nil {
		t.Fatal(err)
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	if _, err := otel.Register(provider.Meter("test"), r); err != nil {
		t.Fatal(err)
	}
	gathered, err := to.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, want := families(t, gathered), parsed(t, r)
	for name, w := range want {
		g, ok := got[name]
		if !ok || g.kind != w.kind || g.help != w.help || len(g.series) != len(w.series) {
			t.Errorf("%s: %v, want %v", name, g, w)
			continue
		}
		for key, v := range w.series {
			if x, ok := g.series[key]; !ok || math.Abs(x-v) > 1e-9 {
				t.Errorf("%s{%s} is %g, want %g", name, key, x, v)
			}
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is not on the page", name)
		}
	}
}
