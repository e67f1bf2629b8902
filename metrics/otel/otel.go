// Package otel exports the sources of a metrics.Registry to OpenTelemetry. It is a separate module, so that the main
// module does not depend on OpenTelemetry. It uses the metrics API only and leaves the SDK to the program.
//
//	unregister, err := otel.Register(provider.Meter("github.com/ashlar-go/ashlar"), &registry)
//
// # Names
//
// Names are those of the Prometheus page with dots in place of the first two underscores, without _total, and without
// the unit if that is bytes or seconds, which the instrument has: ashlar_memory_allocated_added_bytes_total is
// ashlar.memory.allocated_added, in By. OpenTelemetry's own translation to Prometheus restores the names of the page,
// so grafana.json works with both. Attributes have the names of the page's labels.
//
// Metrics that may be summed are observable up-down counters, other gauges are observable gauges, and counters are
// observable counters: of int64, or of float64 if the unit is seconds.
//
// # Counters
//
// OpenTelemetry's counters do not decrease. A counter that was reset (ResetAccumulatedStats) continues from its earlier
// value, and misses the increase between the last collection and the reset. The counter of a source that failed keeps
// its value. The counter of a removed source ends: a source with the same labels that is added after the next
// collection starts with its own figures.
package otel

// One lock is held during a whole collection, while sources are read. Otherwise two readers could mistake each other's
// figures for a reset.

import (
	"context"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/metrics"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Register creates an instrument of m for each metric and observes the sources of r whenever m's provider collects.
// Sources may be added and removed. The error is that of m. A source that fails does not fail the collection, which
// would drop the figures of the other sources: its ashlar.scrape.success is 0, and r.Gather returns the reason.
// Register a registry once with a provider; otherwise all sums are doubled. Calling unregister ends the observation;
// the instruments remain, without values.
//
// The SDK keeps 2000 attribute sets of an instrument and adds all others to a single one; a peak has three for each
// allocator. For more than 600 allocators raise the limit (sdk/metric.WithCardinalityLimit).
func Register(m metric.Meter, r *metrics.Registry) (unregister func() error, err error) {
	b := &bridge{registry: r, observe: map[*metrics.Metric]observe{}, counters: map[series]progress{}}
	var instruments []metric.Observable
	for _, row := range metrics.Metrics() {
		instrument, observe, err := instrumentOf(m, row)
		if err != nil {
			return nil, err
		}
		b.observe[row] = observe
		instruments = append(instruments, instrument)
	}
	registration, err := m.RegisterCallback(b.collect, instruments...)
	if err != nil {
		return nil, err
	}
	return registration.Unregister, nil
}

// Name returns the name and the unit of a metric in OpenTelemetry.
func Name(m *metrics.Metric) (name, unit string) {
	name = strings.TrimSuffix(m.Name, "_total")
	unit = units[name[strings.LastIndexByte(name, '_')+1:]]
	if m.Unit == "bytes" || m.Unit == "seconds" {
		name = strings.TrimSuffix(name, "_"+m.Unit)
	}
	return strings.Replace(name, "_", ".", 2), unit
}

// units maps the last word of a name to a unit of UCUM. A unit that is only a word is in braces; Prometheus omits it.
var units = map[string]string{
	"bytes": "By", "seconds": "s", "blocks": "{block}", "segments": "{segment}",
	"retries": "{request}", "ooms": "{request}", "rejections": "{request}", "syncs": "{wait}", "calls": "{call}",
}

// An observe reports a value to the instrument of a metric, in Metric.Per parts of its unit.
type observe func(metric.Observer, int64, metric.ObserveOption)

func instrumentOf(m metric.Meter, row *metrics.Metric) (metric.Observable, observe, error) {
	name, unit := Name(row)
	help, in := metric.WithDescription(row.Help), metric.WithUnit(unit)
	switch {
	case row.Per != 1 && row.Type == metrics.Counter:
		i, err := m.Float64ObservableCounter(name, help, in)
		return i, inUnits(i, row), err
	case row.Per != 1:
		i, err := m.Float64ObservableGauge(name, help, in)
		return i, inUnits(i, row), err
	case row.Type == metrics.Counter:
		i, err := m.Int64ObservableCounter(name, help, in)
		return i, whole(i), err
	case row.Adds:
		i, err := m.Int64ObservableUpDownCounter(name, help, in)
		return i, whole(i), err
	default:
		i, err := m.Int64ObservableGauge(name, help, in)
		return i, whole(i), err
	}
}

func whole(i metric.Int64Observable) observe {
	return func(o metric.Observer, v int64, of metric.ObserveOption) { o.ObserveInt64(i, v, of) }
}

func inUnits(i metric.Float64Observable, row *metrics.Metric) observe {
	return func(o metric.Observer, v int64, of metric.ObserveOption) {
		o.ObserveFloat64(i, metrics.Sample{Metric: row, Value: v}.Float(), of)
	}
}

// A bridge is one registration.
type bridge struct {
	registry *metrics.Registry
	observe  map[*metrics.Metric]observe

	mu       sync.Mutex
	counters map[series]progress // as of the last collection
}

type series struct {
	metric     *metrics.Metric
	attributes attribute.Distinct
}

// A progress is the state of a counter: its last value, and the sum of the values before each reset.
type progress struct {
	source     *metrics.Source
	attributes attribute.Set
	last, past int64
}

func (b *bridge) collect(_ context.Context, o metric.Observer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	samples, _ := b.registry.Gather() // ashlar_scrape_success reports errors
	counters := make(map[series]progress, len(b.counters))
	failed := map[*metrics.Source]bool{}
	for _, s := range samples {
		if s.Metric.Name == "ashlar_scrape_success" {
			failed[s.Source] = s.Value == 0
		}
		set, v := attributesOf(s), s.Value
		if s.Metric.Type == metrics.Counter {
			key := series{s.Metric, set.Equivalent()}
			p := b.counters[key]
			if v < p.last {
				p.past += p.last
			}
			p.source, p.attributes, p.last = s.Source, set, v
			counters[key] = p
			v += p.past
		}
		b.observe[s.Metric](o, v, metric.WithAttributeSet(set))
	}
	for key, p := range b.counters {
		if failed[p.source] {
			counters[key] = p
			b.observe[key.metric](o, p.last+p.past, metric.WithAttributeSet(p.attributes))
		}
	}
	b.counters = counters
	return nil
}

func attributesOf(s metrics.Sample) attribute.Set {
	labels := s.Source.Labels()
	attributes := make([]attribute.KeyValue, 0, len(labels)+1)
	for _, l := range labels {
		attributes = append(attributes, attribute.String(l.Name, l.Value))
	}
	if s.Label.Value != "" {
		attributes = append(attributes, attribute.String(s.Label.Name, s.Label.Value))
	}
	return attribute.NewSet(attributes...)
}
