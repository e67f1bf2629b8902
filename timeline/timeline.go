// Package timeline records named spans of work with the times at which a device did the work. It prints them as a
// tree, as an ASCII timeline and as a Chrome trace.
//
// A [Recorder] belongs to one device. Each goroutine that queues work records in a [Lane] of its own; an engine gives
// every session one. [Lane.Begin] and [Span.End] put stamps of the device's clock on a stream, so a span's time is the
// time of the work queued between the two calls, not the time that queueing took. Spans of a lane nest in the order of
// the calls. Each span has a level; spans above the Recorder's level cost no device call and no memory.
//
// Recording never waits for the device. [Recorder.Read] waits for the stamps and returns a [Recording]: plain data,
// which [WriteTree], [WriteTimeline] and [WriteChromeTrace] print. Spans with defects are kept and shown as such: spans
// without an end, spans still open when their parent ended, spans that ended on another stream, and spans whose stamp
// the device refused (during a capture, for example).
//
// The time zero of a Recorder is the earliest stamp of its first Read, or the moment of the last [Align]. Clocks of
// different devices are unrelated: without Align, the recordings of several devices in one file all begin at zero.
//
// A Recorder is safe for concurrent use. It does not time host work, and does not look inside launched graphs.
package timeline

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
)

// Data structures and invariants:
//
//	spans      at most Options.Max, numbered from 1 in the order of their calls: half of them the newest, and of the
//	           older ones the outermost (history.go); a span that falls out takes its stamps along
//	samples    a ring of as many, numbered likewise
//	point      an instant of a stream: nothing, a stamp, or a time; the holder of a stamp returns it to the device
//	Lane.open  numbers of the open spans, the outermost first; ascending
//	anchor     a stamp whose time is known, from which others are measured
//
// Each stamp is held by one point: in a ring, in the Read that turns it into a time, as the anchor, or in the list of
// stamps that the device refused to take back. Close leaves none.
//
// GPUs report the distance between two stamps as a 32-bit number, exact to half a microsecond within some seconds and
// inexact beyond. So the anchor moves along: a stamp that lies more than a second from it becomes the next anchor. A
// Read takes the stamps of each stream in order, so rounding never puts a later stamp before an earlier one: spans that
// a lane has on one stream nest in time as they do in the order of the calls.
//
// Locks: Recorder.reading admits one Read, Reset, Align or Close. Under it Recorder.mu, a leaf, guards everything else.
// Neither the device nor Options.Memory is called under mu.

// Off is the level at which nothing is recorded.
const Off = -1

// DefaultMax is the number of spans that a Recorder keeps by default.
const DefaultMax = 16384

// Options describe a Recorder.
type Options struct {
	// Level is the highest level that is recorded, and Off turns recording off. The zero value records level 0 alone.
	Level int

	Name  string // of the device in output; "" means its driver, number and product: "cuda:0 NVIDIA H200"
	Index int    // the device's number among those of the program: the process of a Chrome trace

	// Memory returns the bytes in use now, or is nil. It is called when the host begins and ends a span, which may be
	// long before the device does. No lock of the Recorder is held.
	Memory func() int64

	// Max bounds the spans, and the samples, that are kept; Recording.Dropped counts the others. The oldest samples are
	// dropped first. Of the spans, the newest half of Max is kept, and of the older ones those nested least deeply, the
	// newer first: a span around many short ones outlives them. 0 means DefaultMax.
	Max int
}

// A Recorder records the work of one device. It is safe for concurrent use.
type Recorder struct {
	dev    driver.Device
	clock  driver.Timing // nil if the device has none
	opts   Options
	number uint64 // of all recorders

	level   atomic.Int64
	reading chan struct{} // holds a token while a Read is under way

	// Owned by the holder of the token.
	anchor point         // known, with a stamp; or nothing
	stream driver.Stream // nil until the first wait

	mu      sync.Mutex
	spans   history
	samples ring[sample]
	lanes   int
	refused []driver.Stamp // that the device refused to take back
	closed  bool
}

// New returns a Recorder for dev, which must outlive it. Spans of a device without a clock have an order and no times.
// It panics if dev is nil or Options.Max is negative.
func New(dev driver.Device, opts Options) *Recorder {
	if dev == nil || opts.Max < 0 {
		panic(fmt.Sprintf("timeline: New with device %v and Max %d", dev, opts.Max))
	}
	if opts.Name == "" {
		info := dev.Info()
		opts.Name = fmt.Sprintf("%s:%d %s", info.Driver, info.Ordinal, info.Name)
	}
	opts.Max = cmp.Or(opts.Max, DefaultMax)
	r := &Recorder{
		dev: dev, clock: dev.Timing(), opts: opts, number: recorders.Add(1),
		reading: make(chan struct{}, 1),
		spans:   newHistory(opts.Max), samples: ring[sample]{max: opts.Max},
	}
	r.level.Store(int64(opts.Level))
	return r
}

// Level returns the highest level that is recorded; it is negative if nothing is.
func (r *Recorder) Level() int { return int(r.level.Load()) }

// SetLevel changes the level. Spans that are open are recorded to their ends.
func (r *Recorder) SetLevel(level int) { r.level.Store(int64(level)) }

// records reports whether spans of a level are recorded.
func (r *Recorder) records(level int) bool {
	most := r.level.Load()
	return most >= 0 && int64(level) <= most
}

// Lane returns a new lane. Several lanes may have the same name. A lane needs no Close.
func (r *Recorder) Lane(name string) *Lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes++
	return &Lane{r: r, name: cut(name, longestName), number: r.lanes}
}

// Reset forgets everything recorded so far, open spans too: ending them does nothing. Time zero stays. It waits for a
// Read that is under way, not for the device.
func (r *Recorder) Reset() {
	r.reading <- struct{}{}
	defer func() { <-r.reading }()
	r.forget()
}

// forget empties the rings. The caller holds the token.
func (r *Recorder) forget() {
	r.mu.Lock()
	spans, samples := r.spans.clear(), r.samples.clear()
	r.mu.Unlock()
	for i := range spans {
		r.discard(&spans[i].begin)
		r.discard(&spans[i].end)
	}
	for i := range samples {
		r.discard(&samples[i].point)
	}
}

// Close forgets everything, returns every stamp to the device and ends recording: later calls of Begin and End are
// ignored. It waits for a Read that is under way, and for the stamps of a cancelled Read. The error is that of the
// device if it refused a stamp. Closing twice is a no-op.
func (r *Recorder) Close() error {
	r.reading <- struct{}{}
	defer func() { <-r.reading }()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.SetLevel(Off)
	r.forget()
	r.discard(&r.anchor)
	err := r.retry()
	if r.stream != nil {
		if failed := r.stream.Close(); failed != nil {
			return cmp.Or(err, failed)
		}
		r.stream = nil
	}
	return err
}
