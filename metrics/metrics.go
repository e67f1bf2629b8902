// Package metrics tells monitoring systems what allocators hold: as a page in the text formats of Prometheus and
// OpenMetrics, as a variable of package expvar, and, through the module metrics/otel, as instruments of OpenTelemetry.
//
//	var r metrics.Registry
//	_, err := r.Add(metrics.Labels{Device: "cuda:0", Allocator: "main"}, a) // any mem.Allocator, layers and all
//	http.Handle("/metrics", &r)
//
// What is written, under which names and labels, is the table Metrics, and for people names.md beside this file; grafana.json
// is a dashboard for Grafana that shows it.
//
// # Structure
//
// A Registry is a list of sources, in the order in which they were added. A Source is its labels, with which every sample of
// it begins, and a function that asks an allocator, page-locked memory, a tenant or a device for its figures. The list is
// replaced, never changed, so a scrape walks the one that it found.
//
// Nothing happens but at a scrape: there is no goroutine and nothing on the path of a request. A scrape asks each layer of a
// source once, so what one allocator counts is of one instant, and what two say, or two layers of one stack, is not. The
// samples of a source count only if all of it went well: one that fails or panics is missing, but for its
// ashlar_scrape_success of 0, and the others are there.
//
// # Invariant
//
// No two sources have the same labels, and no source has a label that a metric may add: no two samples of a scrape are of the
// same series.
//
// # Counters
//
// A counter falls to zero when somebody resets it (ResetAccumulatedStats), or when a source was removed and another has its
// labels. Prometheus takes every fall of a counter for a restart from zero: rate and increase go on from there, and lose at
// most what came between the last scrape and the reset. Nothing else makes one fall: a sum that does, as some of a mem.Stats do
// above a magazine, is not told. Gauges of peaks fall when peaks are reset.
//
// # Locks
//
// The list's, a leaf. None is held while a source is asked, which takes the locks of that source.
//
// # What it does not do
//
// It keeps no history, reads no clock, does not compress, and has no time limit: a source that hangs keeps its scrape waiting.
// It does not find allocators by itself. Importing it imports expvar, which serves /debug/vars on http.DefaultServeMux.
package metrics

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// A Registry is a set of sources, and what a monitoring system asks: an http.Handler, an io.WriterTo, a variable of expvar.
// The zero value is empty and ready. It must not be copied. Safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	sources []*Source // replaced whole
}

// Labels tell one source from the others. Device and Allocator are the program's own names for them; each must be there,
// though a device itself has no Allocator. No value may be empty, which to Prometheus is no label, or be other than UTF-8.
type Labels struct {
	Device    string            // "cuda:0"
	Allocator string            // "main"
	More      map[string]string // further labels, such as model="llama"
}

// A Label is a name and its value.
type Label struct {
	Name, Value string
}

// A Source is something whose figures a Registry tells.
type Source struct {
	registry *Registry
	labels   []Label
	text     string // the labels as the page has them: the source's identity, too
	collect  func(*scrape) error
}

// Labels returns the labels that all samples of the source have. The caller must not change them.
func (s *Source) Labels() []Label { return s.labels }

// Remove takes the source out of its registry. A scrape that is under way may still ask it. Removing it again does nothing.
func (s *Source) Remove() {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.sources, s); i >= 0 {
		r.sources = slices.Delete(slices.Clone(r.sources), i, i+1)
	}
}

// Add adds an allocator, and finds in its layers what there is to tell: the first with statistics (mem.StatsReporter), the
// first that holds blocks back (mem/magazine), the first that measures (layer.NewCounter), and the lowest limit of all (mem.LimitOf).
// The layers must stay as they are. What two stacks have in common is told twice if both are added. The error says that there is nothing to tell, or what is wrong
// with the labels.
func (r *Registry) Add(l Labels, a mem.Allocator) (*Source, error) {
	collect := ofAllocator(a)
	if collect == nil {
		return nil, fmt.Errorf("metrics: Add %s/%s: no layer of the %T has anything to tell: put a layer.NewCounter on top",
			l.Device, l.Allocator, a)
	}
	return r.add(l, true, "", collect)
}

// AddStats adds what has the statistics of an allocator without being one: stats is the method of a mem.StatsReporter.
func (r *Registry) AddStats(l Labels, stats func() mem.Stats) (*Source, error) {
	return r.add(l, true, "", func(s *scrape) error {
		s.stats(stats())
		return nil
	})
}

// AddPinned adds page-locked memory of the host: stats is the method of a pinned.Allocator.
func (r *Registry) AddPinned(l Labels, stats func() pinned.Stats) (*Source, error) {
	return r.add(l, true, "", func(s *scrape) error {
		s.pinned(stats())
		return nil
	})
}

// AddTenant adds a tenant of the allocator that l names; its name, which must not be empty, is the label tenant. Remove it when
// the tenant leaves.
func (r *Registry) AddTenant(l Labels, t *layer.Tenant) (*Source, error) {
	if t.Name() == "" {
		return nil, fmt.Errorf("metrics: a tenant of %s/%s without a name", l.Device, l.Allocator)
	}
	return r.add(l, true, t.Name(), func(s *scrape) error {
		s.add(quotaLive, "", t.Live())
		s.add(quotaReserved, "", t.Reserved())
		s.add(quotaLimit, "", t.Limit())
		return nil
	})
}

// AddDevice adds the memory of a device as the device sees it, other processes' included: available is the method of a
// driver.Device. Each scrape then costs a call of the driver, and an error of that is one of the source.
func (r *Registry) AddDevice(l Labels, available func() (free, total int64, err error)) (*Source, error) {
	return r.add(l, false, "", func(s *scrape) error {
		free, total, err := available()
		s.add(deviceFree, "", free)
		s.add(deviceTotal, "", total)
		return err
	})
}

func (r *Registry) add(l Labels, ofAllocator bool, tenant string, collect func(*scrape) error) (*Source, error) {
	labels, err := l.list(ofAllocator, tenant)
	if err != nil {
		return nil, err
	}
	s := &Source{registry: r, labels: labels, text: labelText(labels), collect: collect}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.sources, func(o *Source) bool { return o.text == s.text }) {
		return nil, fmt.Errorf("metrics: there is a source with the labels {%s} already: their series would be the same", s.text)
	}
	r.sources = append(slices.Clone(r.sources), s)
	return s, nil
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// list returns the labels in the order in which they are written, or says which is wrong.
func (l Labels) list(ofAllocator bool, tenant string) ([]Label, error) {
	labels := []Label{{"device", l.Device}}
	if ofAllocator {
		labels = append(labels, Label{"allocator", l.Allocator})
	} else if l.Allocator != "" {
		return nil, fmt.Errorf("metrics: the allocator %q of device %q: a device itself has none", l.Allocator, l.Device)
	}
	if tenant != "" {
		labels = append(labels, Label{"tenant", tenant})
	}
	for _, name := range slices.Sorted(maps.Keys(l.More)) {
		if !labelName.MatchString(name) || strings.HasPrefix(name, "__") || slices.Contains(ownLabels, name) {
			return nil, fmt.Errorf("metrics: a label cannot have the name %q: want letters, digits and _, not __ first, and none of %s",
				name, strings.Join(ownLabels, ", "))
		}
		labels = append(labels, Label{name, l.More[name]})
	}
	for _, label := range labels {
		if label.Value == "" || !utf8.ValidString(label.Value) {
			return nil, fmt.Errorf("metrics: the label %s=%q of %s/%s: want text in UTF-8, and not none", label.Name, label.Value,
				l.Device, l.Allocator)
		}
	}
	return labels, nil
}

func (r *Registry) list() []*Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sources
}
