package metrics

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// A Sample is a value of a series.
type Sample struct {
	Metric *Metric
	Source *Source
	Label  Label // the metric's own, pool or call; zero if it has none
	Value  int64 // in parts of the unit: see Metric.Per
}

// Float returns the value in the metric's unit.
func (s Sample) Float() float64 { return float64(s.Value) / float64(s.Metric.Per) }

// A SourceError reports a source that failed or panicked during a scrape.
type SourceError struct {
	Source *Source
	Err    error
}

func (e *SourceError) Error() string {
	return fmt.Sprintf("metrics: source {%s}: %v", e.Source.text, e.Err)
}

// Unwrap returns the error of the source.
func (e *SourceError) Unwrap() error { return e.Err }

// Gather reads every source and returns the samples in the order of Metrics, and those of one metric in the order of
// the sources. The error joins a *SourceError for each source that failed; the samples of the others are returned too.
func (r *Registry) Gather() ([]Sample, error) {
	s := scrape{counts: make([]int, len(table)+1)}
	var errs []error
	for _, source := range r.list() {
		s.source = source
		if err := s.ask(); err != nil {
			errs = append(errs, &SourceError{source, err})
		}
	}
	return s.sorted(), errors.Join(errs...)
}

// A scrape collects samples.
type scrape struct {
	source  *Source
	samples []Sample
	counts  []int // number of samples by metric, shifted by one
}

// ask adds the samples of the source. If the source fails, it adds only the sample of the failure.
func (s *scrape) ask() (err error) {
	n := len(s.samples)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		ok := int64(1)
		if err != nil {
			s.samples, ok = s.samples[:n], 0
		}
		s.add(success, "", ok)
		for _, sample := range s.samples[n:] {
			s.counts[sample.Metric.index+1]++
		}
	}()
	return s.source.collect(s)
}

// sorted returns the samples by metric. It uses a counting sort, because there are few metrics and many samples.
func (s *scrape) sorted() []Sample {
	for i := 1; i < len(s.counts); i++ {
		s.counts[i] += s.counts[i-1]
	}
	sorted := make([]Sample, len(s.samples))
	for _, sample := range s.samples {
		at := &s.counts[sample.Metric.index]
		sorted[*at] = sample
		*at++
	}
	return sorted
}

// add adds a sample. A nonempty value is the value of the last of the metric's Labels.
func (s *scrape) add(m *Metric, value string, v int64) {
	sample := Sample{Metric: m, Source: s.source, Value: v}
	if value != "" {
		sample.Label = Label{m.Labels[len(m.Labels)-1], value}
	}
	s.samples = append(s.samples, sample)
}

func (s *scrape) quantity(q quantity, value string, st mem.Stat) {
	s.add(q.now, value, st.Current)
	s.add(q.peak, value, st.Peak)
	if q.added != nil {
		s.add(q.added, value, st.Allocated)
	}
	if q.removed != nil {
		s.add(q.removed, value, st.Freed)
	}
}

// stats adds the samples of the two pools. Other figures are sums over the pools, except peaks, because the peaks of
// the two pools are not at the same instant.
func (s *scrape) stats(st mem.Stats) {
	for i, a := range st.Arrays() {
		s.quantity(arrays[i], "small", a.Array.SmallPool)
		s.quantity(arrays[i], "large", a.Array.LargePool)
		s.add(arrays[i].peak, "all", a.Array.All.Peak)
	}
	s.quantity(oversizeBlocks, "", st.OversizeAllocations)
	s.quantity(oversizeSegments, "", st.OversizeSegments)
	s.add(retries, "", st.NumAllocRetries)
	s.add(ooms, "", st.NumOOMs)
	s.add(rejections, "", st.NumOOMRejections)
	s.add(syncs, "", st.NumSyncAllStreams)
	s.add(driverCalls, "alloc", st.NumDeviceAlloc)
	s.add(driverCalls, "free", st.NumDeviceFree)
	if st.MaxSplitSize > 0 {
		s.add(splitLimit, "", st.MaxSplitSize)
	}
}

func (s *scrape) pinned(st pinned.Stats) {
	for i, stat := range []mem.Stat{st.Allocations, st.AllocatedBytes, st.ActiveRequests, st.ActiveBytes} {
		s.quantity(pinnedStats[i], "", stat)
	}
	for _, c := range []struct {
		call string
		took pinned.Duration
	}{{"alloc", st.HostAllocTime}, {"free", st.HostFreeTime}} {
		s.add(pinnedCalls, c.call, c.took.Count)
		s.add(pinnedSeconds, c.call, c.took.Total)
		s.add(pinnedMax, c.call, c.took.Max)
		if c.took.Min > 0 {
			s.add(pinnedMin, c.call, c.took.Min)
		}
	}
}

// ofAllocator returns a function that reads the figures of a stack of layers, or nil if they have none.
func ofAllocator(a mem.Allocator) func(*scrape) error {
	var collectors []func(*scrape)
	if r, ok := mem.Find[mem.StatsReporter](a); ok {
		collectors = append(collectors, func(s *scrape) { s.stats(r.Stats()) })
	}
	if h, ok := mem.Find[interface{ Held() (n int, size int64) }](a); ok { // a *magazine.Cache
		collectors = append(collectors, func(s *scrape) {
			n, size := h.Held()
			s.add(heldBlocks, "", int64(n))
			s.add(heldBytes, "", size)
		})
	}
	if m, ok := mem.Find[*layer.Counter](a); ok {
		collectors = append(collectors, func(s *scrape) {
			c := m.Overall()
			s.quantity(measuredBlocks, "", c.Blocks)
			s.quantity(measuredBytes, "", c.Bytes)
		})
	}
	if _, limited := mem.LimitOf(a); !limited && len(collectors) == 0 {
		return nil
	}
	return func(s *scrape) error {
		for _, t := range collectors {
			t(s)
		}
		if n, limited := mem.LimitOf(a); limited {
			s.add(limit, "", n)
		}
		return nil
	}
}
