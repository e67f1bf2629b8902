// Package otel tells OpenTelemetry what the sources of a metrics.Registry hold. It is a module of its own, so that the main one
// does not depend on OpenTelemetry; it needs the API of metrics alone, and leaves the SDK to the program.
//
//	unregister, err := otel.Register(provider.Meter("github.com/ashlar-go/ashlar"), &registry)
//
// # Names
//
// They are those of Prometheus's page with dots for the first two underscores, without the unit where that is bytes or seconds,
// which is the instrument's, and without _total: ashlar_memory_allocated_added_bytes_total is ashlar.memory.allocated_added, in
// By. OpenTelemetry's own translation to Prometheus gives the names of the page back, so grafana.json shows either. Attributes
// have the names of the page's labels.
//
// What may be added up is an observable up-down counter, other gauges are observable gauges, and what only rises is an
// observable counter: of int64, or of float64 where the unit is seconds.
//
// # Counters
//
// OpenTelemetry's counters do not fall. One that was reset (ResetAccumulatedStats) goes on from what it was, and misses what was
// counted between the last collection and the reset. That of a source that failed stays as it was. That of a source that was
// removed ends, and is forgotten: a source with its labels that comes after the next collection begins at its own figures.
//
// # Locks
//
// One, over a whole collection, so that two readers do not take each other's figures for a reset: sources are asked under it.
package otel

import (
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ashlar-go/ashlar/metrics"
)

// Register makes an instrument of m for each metric of the table, and observes what the sources of r say whenever m's
// provider collects; sources may come and go. The error is m's. A source that fails is no error of a collection, which would
// keep the figures of the others from being exported: its ashlar.scrape.success is 0, and r.Gather says why. Register a
// registry once with a provider: twice, and everything that may be added up is doubled. Unregister ends it; the instruments
// stay, without values.
//
// The SDK keeps 2000 sets of attributes of an instrument, and adds up the rest as one; a peak has three for each allocator. For
// more than 600 allocators raise that (sdk/metric.WithCardinalityLimit).
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

// Name returns the name and the unit that a metric of the table has in OpenTelemetry.
func Name(m *metrics.Metric) (name, unit string) {
	name = strings.TrimSuffix(m.Name, "_total")
	unit = units[name[strings.LastIndexByte(name, '_')+1:]]
	if m.Unit == "bytes" || m.Unit == "seconds" {
		name = strings.TrimSuffix(name, "_"+m.Unit)
	}
	return strings.Replace(name, "_", ".", 2), unit
}

// units are those of UCUM, by the last word of a name. What is only a word stands in braces, and is left out in Prometheus.
var units = map[string]string{
	"bytes": "By", "seconds": "s", "blocks": "{block}", "segments": "{segment}",
	"retries": "{request}", "ooms": "{request}", "rejections": "{request}", "syncs": "{wait}", "calls": "{call}",
}

// An observe tells the instrument of a metric a value, in the metric's parts of its unit.
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
	counters map[series]progress // of the last collection
}

type series struct {
	metric     *metrics.Metric
	attributes attribute.Distinct
}

// A progress is what a counter has told: its value, and the sum of those from which it fell.
type progress struct {
	source     *metrics.Source
	attributes attribute.Set
	last, past int64
}

func (b *bridge) collect(_ context.Context, o metric.Observer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	samples, _ := b.registry.Gather() // told by ashlar_scrape_success
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
