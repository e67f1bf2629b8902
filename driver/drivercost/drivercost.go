// Package drivercost measures the time of a device's calls and makes a cost model for driver/sim from the measurements.
//
// Measure measures the calls of package driver's interfaces that reach a driver, most by size, some by the number of
// pages or of work items. Each Figure is the time of one call alone: its resources are allocated and freed outside of
// the timed part. Short calls are timed many in a row, and the time is divided. After rounds that only warm up, rounds
// are repeated until there are enough samples or the time for the figure is over. A Figure has the median and the
// spread of the samples.
//
// Queued copies have two figures: the time until the call returns, for a small size, and the time until the work is
// done, for large sizes. The model (model.go) uses the first for the fixed cost and the second for the bytes per
// second.
//
// The caller provides the clock. With the virtual time of a simulated device, the result is the cost model of that
// device; the tests of the package rely on this.
//
// Measure assumes that it uses the device alone: other work on it, or other programs on its hardware, distort the
// figures. It queues nothing on the default stream. If it fails, closing the device frees its resources.
package drivercost

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// Options configure Measure.
type Options struct {
	// Now reads a monotonic clock; only differences of its times are used.
	Now func() time.Duration

	// Progress, if not nil, is called with the name of the current measurement and the completed part of all, from 0 to
	// 1.
	Progress func(what string, done float64)
}

// A Figure is the measured time of one call.
type Figure struct {
	Call string // the method, as in driver.Error: "VirtualMemory.Map"
	Size int64  // bytes of the call or of each page
	N    int    // pages in one call, or work items in a graph; 0 if not applicable
	Done bool   // timed until the work was done, not until the call returned
	Note string // special conditions; the model ignores such figures

	Median, P10, P90 time.Duration // of one call; nine in ten samples are at most P90
	Samples          int
}

// A Report is the result of Measure.
type Report struct {
	Info    driver.Info
	Figures []Figure // grouped by call, in ascending order
	Absent  []string // calls that could not be measured, with the reason: "Graphs: the device has none"
}

const (
	warmups = 2  // rounds that are not counted
	least   = 5  // minimum number of samples, however long they take
	most    = 31 // maximum number of samples
	budget  = 250 * time.Millisecond

	enough = 64 << 20 // bytes of free memory
)

// Measure measures all calls of d. The caller should ensure that nothing else uses the device. On a GPU it takes about
// twenty seconds. (This is an estimate: it repeats some sixty figures for at most a quarter of a second each, or five
// times.)
func Measure(d driver.Device, opts Options) (*Report, error) {
	m := &meter{d: d, now: opts.Now, report: &Report{Info: d.Info()}}
	free, _, err := d.Available()
	if err != nil {
		return nil, fmt.Errorf("measure the device: %w", err)
	}
	if m.free = free; free < enough {
		return nil, fmt.Errorf("measure the device: %d bytes are free, and it takes %d", free, enough)
	}
	if m.s, err = d.NewStream(driver.StreamOptions{}); err != nil {
		return nil, fmt.Errorf("measure the device: %w", err)
	}
	m.findOverhead()
	parts := []struct {
		what    string
		measure func() error
	}{
		{"memory", m.memory},
		{"virtual memory by size", m.pagesBySize},
		{"virtual memory by pages", m.pagesByCount},
		{"streams", m.streams},
		{"copies", m.copies},
		{"page-locked memory", m.pinned},
		{"copies of page-locked memory", m.pinnedCopies},
		{"kernels", m.kernels},
		{"time", m.timing},
		{"graphs", m.graphs},
	}
	for i, p := range parts {
		if opts.Progress != nil {
			opts.Progress(p.what, float64(i)/float64(len(parts)))
		}
		switch err := p.measure(); {
		case errors.Is(err, driver.ErrUnsupported), errors.Is(err, driver.ErrNoMemory):
			m.report.Absent = append(m.report.Absent, fmt.Sprintf("%s: %v", p.what, err))
		case err != nil:
			return nil, fmt.Errorf("measure %s: %w", p.what, err)
		}
	}
	if err := m.s.Close(); err != nil {
		return nil, fmt.Errorf("measure the device: %w", err)
	}
	m.report.group()
	return m.report, nil
}

// group groups the figures by call, in the order in which the calls were first measured.
func (r *Report) group() {
	first := map[string]int{}
	for i, f := range r.Figures {
		if _, ok := first[f.Call]; !ok {
			first[f.Call] = i
		}
	}
	slices.SortStableFunc(r.Figures, func(a, b Figure) int { return first[a.Call] - first[b.Call] })
}

// A meter is one run of Measure.
type meter struct {
	d        driver.Device
	s        driver.Stream // for work
	now      func() time.Duration
	overhead time.Duration // of reading the clock twice
	free     int64         // free bytes of the device at the start
	report   *Report
}

// A figure is a Figure in progress.
type figure struct {
	Figure
	m     *meter
	times []time.Duration
}

// figure starts the figure of a call that is timed alone.
func (m *meter) figure(call string, size int64, n int) *figure {
	return &figure{Figure: Figure{Call: call, Size: size, N: n}, m: m}
}

func (m *meter) findOverhead() {
	times := make([]time.Duration, 101)
	for i := range times {
		start := m.now()
		times[i] = m.now() - start
	}
	slices.Sort(times)
	m.overhead = times[len(times)/2]
}

// time takes a sample: it times call, which makes so many calls.
func (f *figure) time(calls int, call func() error) error {
	start := f.m.now()
	err := call()
	took := f.m.now() - start - f.m.overhead
	f.times = append(f.times, max(0, took)/time.Duration(calls))
	return err
}

// measure repeats a round, which takes one sample of each figure, and adds the figures to the report.
func (m *meter) measure(round func() error, figures ...*figure) error {
	var begun time.Duration
	for i := range warmups + most {
		if i == warmups {
			for _, f := range figures {
				f.times = f.times[:0]
			}
			begun = m.now()
		}
		if i >= warmups+least && m.now()-begun > budget {
			break
		}
		if err := round(); err != nil {
			return err
		}
	}
	for _, f := range figures {
		f.sum(f.times)
		m.report.Figures = append(m.report.Figures, f.Figure)
	}
	return nil
}

// sum computes the figure from the samples. It sorts them.
func (f *Figure) sum(times []time.Duration) {
	slices.Sort(times)
	n := len(times)
	f.Median, f.P10, f.P90, f.Samples = times[n/2], times[n/10], times[n-1-n/10], n
}

// Summarize returns the figure of a call from its times, at least one. It sorts them.
func Summarize(call string, times []time.Duration) Figure {
	f := Figure{Call: call}
	f.sum(times)
	return f
}

// repeat calls f n times, or until it fails.
func repeat(n int, f func(i int) error) error {
	for i := range n {
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}
