// Package drivercost measures what the calls of a device cost its caller, and makes a cost model for driver/sim of it.
//
// Measure goes through the calls of the seam that reach a driver, most by size, some by the number of pages or of pieces
// of work. Each Figure is of one call alone: what it needs is made before, and given back after, the clock runs. Short
// calls are timed many in a row and divided. Rounds are repeated until there are enough of them or the figure's time is
// up, after rounds that only warm up; what is kept is the median, and how far the samples spread.
//
// Queued copies have two figures: how long the call takes to return, at a small size, and how long until the work is
// done, at large ones. The model (model.go) takes the fixed cost from the first and the bytes per second from the second.
//
// The clock is the caller's. With the virtual time of a simulated device the model that comes out is the one that went
// in, which is how the package is tested.
//
// It uses the device alone: other work on it, or other programs on its hardware, are in the figures. It queues nothing
// on the default stream. If it fails, what it holds is given back by closing the device.
package drivercost

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// Options say how Measure measures.
type Options struct {
	// Now reads a clock that never goes back; only differences of its times are used.
	Now func() time.Duration

	// Progress, if not nil, is told what is being measured and what part of all, from 0 to 1, lies behind.
	Progress func(what string, done float64)
}

// A Figure is what one call costs.
type Figure struct {
	Call string // the method, as driver.Error names it: "VirtualMemory.Map"
	Size int64  // bytes: of the call, or of each page
	N    int    // pages in one call, or pieces of work in a graph; 0 if that means nothing
	Done bool   // timed until the work was done and waited for, not until the call returned
	Note string // what is special about it; the model leaves such figures out

	Median, P10, P90 time.Duration // of one call; nine in ten samples are not above P90
	Samples          int
}

// A Report is what Measure found.
type Report struct {
	Info    driver.Info
	Figures []Figure // those of one call together, in ascending order
	Absent  []string // what could not be measured, and why, as "Graphs: the device has none"
}

const (
	warmups = 2  // rounds that do not count
	least   = 5  // samples, however long they take
	most    = 31 // samples
	budget  = 250 * time.Millisecond

	enough = 64 << 20 // bytes of free memory
)

// Measure measures all calls of d. The caller should see to it that nothing else uses the device. On a GPU it takes
// about twenty seconds (an estimate: it repeats some sixty figures for a quarter of a second at most, or five times).
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

// group puts the figures of one call together, in the order in which the calls were first measured.
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
	free     int64         // bytes of the device, when it began
	report   *Report
}

// A figure is one that is being measured.
type figure struct {
	Figure
	m     *meter
	times []time.Duration
}

// figure starts one of a call that is timed alone.
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

// time takes a sample: f, which makes so many calls.
func (f *figure) time(calls int, call func() error) error {
	start := f.m.now()
	err := call()
	took := f.m.now() - start - f.m.overhead
	f.times = append(f.times, max(0, took)/time.Duration(calls))
	return err
}

// measure repeats a round, each of which takes one sample of each figure, and reports the figures.
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

// sum puts the samples into the figure. It sorts them.
func (f *Figure) sum(times []time.Duration) {
	slices.Sort(times)
	n := len(times)
	f.Median, f.P10, f.P90, f.Samples = times[n/2], times[n/10], times[n-1-n/10], n
}

// Summarize returns the figure of a call that took these times, of which there must be one. It sorts them.
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
