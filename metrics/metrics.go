// Package metrics exports the statistics of allocators to monitoring systems: as a page in the text formats of
// Prometheus and OpenMetrics, as a variable of package expvar and, through the module metrics/otel, as instruments of
// OpenTelemetry.
//
//	var r metrics.Registry
//	_, err := r.Add(metrics.Labels{Device: "cuda:0", Allocator: "main"}, a) // any mem.Allocator, with its layers
//	http.Handle("/metrics", &r)
//
// The function Metrics returns the table of all metrics. The file names.md lists them with their labels, and
// grafana.json is a Grafana dashboard that shows them.
//
// A Registry is safe for concurrent use. It works only during a scrape: it runs no goroutine and adds no cost to
// requests. A scrape reads each layer of a source once, so the figures of one layer belong to one instant, and those of
// different layers do not. If a source fails or panics, its samples are left out, except ashlar_scrape_success with
// value 0; the samples of the other sources are complete. There is no time limit: a source that blocks delays its
// scrape. Sizes are bytes, times are seconds.
//
// A counter falls to zero when its statistics are reset (ResetAccumulatedStats), or when a source is removed and
// another with the same labels is added. Prometheus takes every decrease of a counter for a restart from zero: rate and
// increase continue from there, and lose at most the increase between the last scrape and the reset. Sums that can
// decrease otherwise, as some of mem.Stats do above a magazine, are not exported. Gauges of peaks decrease when peaks
// are reset.
//
// Importing the package imports expvar, which serves /debug/vars on http.DefaultServeMux.
package metrics

// A Registry is a list of sources in the order of their addition. A Source has the labels of all its samples and a
// function that reads the figures of an allocator, of page-locked memory, of a tenant or of a device. The list is
// replaced, never changed, so a scrape iterates over the list it found.
//
// Invariant: no two sources have the same labels, and no source has a label that a metric may add. So no two samples of
// a scrape belong to the same series.
//
// Registry.mu guards the list and is a leaf. No lock is held while a source is read, which takes the source's own
// locks.

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

// A Registry is a set of sources. It is an http.Handler and an io.WriterTo, and can be published with package expvar.
// The zero value is empty and ready to use. A Registry must not be copied. Safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	sources []*Source // replaced, never changed
}

// Labels identify a source. Device and Allocator are names that the program chooses. Both are required, except that a
// device itself has no Allocator. Values must be nonempty and valid UTF-8.
type Labels struct {
	Device    string            // "cuda:0"
	Allocator string            // "main"
	More      map[string]string // further labels, such as model="llama"
}

// A Label is a name and its value.
type Label struct {
	Name, Value string
}

// A Source is an object whose figures a Registry exports.
type Source struct {
	registry *Registry
	labels   []Label
	text     string // the labels as on the page; it identifies the source
	collect  func(*scrape) error
}

// Labels returns the labels of all samples of the source. The caller must not change them.
func (s *Source) Labels() []Label { return s.labels }

// Remove removes the source from its registry. A scrape in progress may still read it. Removing it again is a no-op.
func (s *Source) Remove() {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.sources, s); i >= 0 {
		r.sources = slices.Delete(slices.Clone(r.sources), i, i+1)
	}
}

// Add adds an allocator with its layers: the first layer with statistics (mem.StatsReporter), the first that keeps
// freed blocks (mem/magazine), the first counter (layer.NewCounter), and the lowest limit of all (mem.LimitOf). The
// layers must not change afterwards. Layers that two added stacks share are exported twice. It is an error if no layer
// has figures to export or a label is invalid.
func (r *Registry) Add(l Labels, a mem.Allocator) (*Source, error) {
	collect := ofAllocator(a)
	if collect == nil {
		return nil, fmt.Errorf("metrics: Add %s/%s: no layer of %T has statistics: wrap it with layer.NewCounter",
			l.Device, l.Allocator, a)
	}
	return r.add(l, true, "", collect)
}

// AddStats adds a source of allocator statistics that is not an allocator: stats is the method of a mem.StatsReporter.
func (r *Registry) AddStats(l Labels, stats func() mem.Stats) (*Source, error) {
	return r.add(l, true, "", func(s *scrape) error {
		s.stats(stats())
		return nil
	})
}

// AddPinned adds page-locked host memory: stats is the method of a pinned.Allocator.
func (r *Registry) AddPinned(l Labels, stats func() pinned.Stats) (*Source, error) {
	return r.add(l, true, "", func(s *scrape) error {
		s.pinned(stats())
		return nil
	})
}

// AddTenant adds a tenant of the allocator that l names. The name of the tenant must not be empty and becomes the label
// tenant. Remove the source when the tenant is closed.
func (r *Registry) AddTenant(l Labels, t *layer.Tenant) (*Source, error) {
	if t.Name() == "" {
		return nil, fmt.Errorf("metrics: a tenant of %s/%s has no name", l.Device, l.Allocator)
	}
	return r.add(l, true, t.Name(), func(s *scrape) error {
		st := t.Stats()
		s.add(quotaLive, "", st.Live)
		s.add(quotaReserved, "", st.Reserved)
		s.add(quotaLimit, "", st.Limit)
		s.add(quotaPeak, "", st.Peak)
		s.add(quotaShare, "", st.Share)
		s.add(quotaClaimed, "", st.Claimed)
		s.add(quotaRefused, "", st.Refused)
		s.add(quotaWipes, "", st.Wipes)
		s.add(quotaWiped, "", st.Wiped)
		return nil
	})
}

// AddDevice adds the memory of a device as the device reports it, including that of other processes: available is the
// method of a driver.Device. Each scrape then costs a driver call; its error is an error of the source.
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
		return nil, fmt.Errorf("metrics: a source with the labels {%s} already exists", s.text)
	}
	r.sources = append(slices.Clone(r.sources), s)
	return s, nil
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// list returns the labels in output order, or an error for an invalid label.
func (l Labels) list(ofAllocator bool, tenant string) ([]Label, error) {
	labels := []Label{{"device", l.Device}}
	if ofAllocator {
		labels = append(labels, Label{"allocator", l.Allocator})
	} else if l.Allocator != "" {
		return nil, fmt.Errorf("metrics: the allocator %q of device %q: the labels of a device itself have no allocator",
			l.Allocator, l.Device)
	}
	if tenant != "" {
		labels = append(labels, Label{"tenant", tenant})
	}
	for _, name := range slices.Sorted(maps.Keys(l.More)) {
		if !labelName.MatchString(name) || strings.HasPrefix(name, "__") || slices.Contains(ownLabels, name) {
			return nil, fmt.Errorf("metrics: a label cannot have the name %q: want letters, digits and _, not __ "+
				"first, and none of %s",
				name, strings.Join(ownLabels, ", "))
		}
		labels = append(labels, Label{name, l.More[name]})
	}
	for _, label := range labels {
		if label.Value == "" || !utf8.ValidString(label.Value) {
			return nil, fmt.Errorf("metrics: the label %s=%q of %s/%s: want nonempty text in UTF-8", label.Name,
				label.Value, l.Device, l.Allocator)
		}
	}
	return labels, nil
}

func (r *Registry) list() []*Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sources
}
