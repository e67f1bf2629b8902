// Package timeline records named spans of work with the times at which a device did them, and prints them as a tree, as
// an ASCII timeline and as a Chrome trace.
//
// # What it does
//
// A Recorder belongs to one device. Work is recorded in lanes, one for each goroutine that queues work (an engine gives
// each session one): Lane.Begin and Span.End put a stamp of the device's clock (driver.Timing) on a stream, so that a
// span's time is that of the work queued between the two, and not of its queueing. Spans of a lane nest in the order of
// the calls. Every span has a level, and those above the Recorder's level cost nothing: no call of the device, no memory.
//
// Nothing waits for the device while spans are recorded. Read waits for the stamps, turns them into times, gives the
// stamps up, and returns a Recording: plain data, which WriteTree, WriteTimeline and WriteChromeTrace print.
//
// What went wrong is kept and shown: a span that nobody ended, that was still open when its parent ended (a panic, an
// early return), that ended on another stream, or whose stamp the device refused (on a stream that captures, say).
//
// # Data structures and invariants
//
//	spans            at most Options.Max, numbered from 1 in the order of their calls: half of them the newest, and of the
//	                 older ones the outermost (history.go); what falls out takes its stamps along
//	samples          a ring of as many, numbered likewise
//	point            an instant of a stream: nothing, a stamp, or a time; who holds a stamp gives it up
//	Lane.open        numbers of the spans that are open, the outermost first; ascending
//	anchor           a stamp whose time is known, from which others are measured
//
// A stamp is held by one point: in a ring, with the Read that is turning it into a time, as the anchor, or in a list of
// those that the device refused to take back. Close leaves none.
//
// GPUs tell how far two stamps are apart as 32-bit numbers, exact to half a microsecond within some seconds and not
// beyond. So the anchor moves along: a stamp that lies more than a second from it becomes the next. A Read takes the
// stamps of each stream in their order, so that rounding never puts a later one before an earlier one: the spans that a
// lane has on one stream nest in time as they do in the order of the calls.
//
// # Time zero
//
// A Recorder's time zero is the earliest stamp that its first Read sees, or the instant at which Align was called. The
// clocks of several devices have nothing to do with each other: without Align, recordings of several devices that are
// written to one file all begin at zero.
//
// # Locks
//
// Recorder.reading admits one Read, Reset, Align or Close; under it Recorder.mu, a leaf, guards everything else.
// Neither the device nor Options.Memory is called under mu.
//
// It does not time what the host does, look into graphs that are launched, or read files of traces.
package timeline

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
)

// Off is the level at which nothing is recorded.
const Off = -1

// DefaultMax is how many spans a Recorder keeps if Options do not say.
const DefaultMax = 16384

// Options describe a Recorder.
type Options struct {
	// Level is the highest level that is recorded, and Off turns recording off. The zero value records level 0 alone.
	Level int

	Name  string // of the device, in what is printed; "" is its driver, number and product: "cuda:0 NVIDIA H200"
	Index int    // the device's number among those of the program: the process of a Chrome trace

	// Memory returns the bytes in use now. It is called where spans begin and end, as the host gets there, which may be
	// long before the device does; no lock of the Recorder is held. It may be nil.
	Memory func() int64

	// Max is how many spans are kept, and how many samples; what is dropped beyond it is counted (Recording.Dropped). Of the
	// samples the oldest go. Of the spans the newest half of Max stays, and of the older ones those that lie in the fewest
	// others, among equals the newer ones: a span around many short ones outlives them. 0 is DefaultMax.
	Max int
}

// A Recorder records what is done on one device. Safe for concurrent use.
type Recorder struct {
	dev    driver.Device
	clock  driver.Timing // nil if the device has none
	opts   Options
	number uint64 // of all recorders

	level   atomic.Int64
	reading chan struct{} // holds a token while someone reads

	// The holder of the token owns these.
	anchor point         // known, with a stamp; or nothing
	stream driver.Stream // nil until something must be waited for

	mu      sync.Mutex
	spans   history
	samples ring[sample]
	lanes   int
	refused []driver.Stamp // the device would not take them back
	closed  bool
}

// New returns a Recorder for dev, which must outlive it. The stamps of a device without a clock are never taken: its
// spans have an order and no times. It panics if dev is nil or Options.Max is negative.
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

// Lane returns a new lane. Lanes may have equal names, and need not be given back.
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

// Close forgets everything, gives every stamp back and ends recording: spans that begin or end later are ignored. It
// waits for a Read that is under way, and for the stamps of one that was cancelled. The error is the device's, if it did
// not take something back. Closing twice is not an error.
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
