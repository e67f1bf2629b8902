package snapshot

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
	"github.com/ashlar-go/ashlar/mem"
)

// ReportOptions configure a Reporter.
type ReportOptions struct {
	Dir string // the directory, which must exist when a report is written

	// Max is the maximum number of reports in Dir, and MaxBytes their maximum total size, including reports of earlier
	// runs and other processes. At the maximum no more reports are written until some are deleted. (The first reports
	// matter most; later failures are often consequences of the first.) 0 means 16 reports and 1 GiB.
	Max      int
	MaxBytes int64

	// Live are the optional parts of Of: with a recorder the reports have the history.
	Live Live

	// Clock, if not nil, returns the time of the failure in microseconds since 1970, as trace.RecorderOptions.Clock
	// does.
	Clock func() int64

	// Done, if not nil, is called for each report with the path of the file, or the reason why there is none
	// (ErrReportsFull or a system error). It runs on the goroutine of the request, before the request fails, and may
	// run concurrently.
	Done func(path string, err error)
}

const (
	defaultReports     = 16
	defaultReportBytes = 1 << 30
)

// ErrReportsFull says that the directory has the maximum number or size of reports.
var ErrReportsFull = errors.New("snapshot: no room for another report")

// A Reporter is an allocator that writes a report when memory runs out. See ReportOOM. Safe for concurrent use.
type Reporter struct {
	inner mem.Allocator
	opts  ReportOptions
	told  bool // inner reports its errors itself

	mu   sync.Mutex
	busy []uintptr // goroutines that report

	writing sync.Mutex // held for one report at a time; mu may be taken under it
}

// ReportOOM returns an allocator that writes a file when a request to a fails for want of memory (an error that matches
// mem.ErrNoMemory), before the caller gets the error. The file is a snapshot of a, as of Of, with statistics, the text
// and facts of the error (Snapshot.OutOfMemory), and the limit of a (Snapshot.Limits). PyTorch's viewer opens it,
// "ashlar info" describes it and, if it has a history, "ashlar replay" shows which settings would have served the
// request. If the allocator describes no segments (mem.Snapshotter), the report has none. RMM's pools dump their state
// in the same way.
//
// If a itself has OnOutOfMemory, as mem/caching does, that method reports the errors, including those of callers that
// use a directly and those that a layer above recovers from. Otherwise only requests through the Reporter are seen. Put
// it above layers that retry, and above the layer of a recorder, whose history then ends with the failure.
//
// The files are oom-000001.pickle and so on, numbered from the last existing one. Each appears completely or not at
// all; a name that begins with .oom- is a file in progress, or one that was in progress when the process ended. A
// report takes as long as writing the snapshot, and concurrent reports wait for each other. A failure to write is
// passed to ReportOptions.Done; the request fails as it would have. No lock is held while Done runs. Failures of
// allocations on the same goroutine while a report is made are not reported.
func ReportOOM(a mem.Allocator, o ReportOptions) *Reporter {
	o.Max = cmp.Or(max(o.Max, 0), defaultReports)
	o.MaxBytes = cmp.Or(max(o.MaxBytes, 0), defaultReportBytes)
	r := &Reporter{inner: a, opts: o}
	teller, ok := a.(interface {
		OnOutOfMemory(observer func(*mem.OutOfMemory))
	})
	if r.told = ok; ok {
		teller.OnOutOfMemory(func(e *mem.OutOfMemory) { r.report(e.Stream, e.Requested, e) })
	}
	return r
}

var _ interface {
	mem.OptionsAllocator
	mem.Mover
	mem.Wrapper
} = (*Reporter)(nil)

// Alloc implements mem.Allocator. The error is that of the layer below.
func (r *Reporter) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := r.inner.Alloc(s, size)
	if err != nil {
		r.reportFailure(s, size, err)
	}
	return b, err
}

// AllocWith implements mem.OptionsAllocator.
func (r *Reporter) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(r.inner, s, size, o)
	if err != nil && !o.Tentative {
		r.reportFailure(s, size, err)
	}
	return b, err
}

// Free implements mem.Allocator.
func (r *Reporter) Free(b mem.Block, used ...driver.Stream) { r.inner.Free(b, used...) }

// Movable implements mem.Mover: blocks are those of the layer below.
func (r *Reporter) Movable(b mem.Block, h mem.Holder) bool { return mem.Movable(r.inner, b, h) }

// Unwrap implements mem.Wrapper.
func (r *Reporter) Unwrap() mem.Allocator { return r.inner }

func (r *Reporter) reportFailure(s driver.Stream, size int64, err error) {
	var oom *mem.OutOfMemory
	untold := !r.told || errors.As(err, &oom) && oom.TooLarge // mem/caching does not report these, as in PyTorch
	if untold && errors.Is(err, mem.ErrNoMemory) {
		r.report(s.ID(), size, err)
	}
}

// report writes a report, unless this goroutine is already writing one.
func (r *Reporter) report(stream driver.StreamID, size int64, cause error) {
	self := goroutine.ID()
	r.mu.Lock()
	nested := slices.Contains(r.busy, self)
	if !nested {
		r.busy = append(r.busy, self)
	}
	r.mu.Unlock()
	if nested {
		return
	}
	defer func() { // Done may panic
		r.mu.Lock()
		i := slices.Index(r.busy, self)
		r.busy = slices.Delete(r.busy, i, i+1)
		r.mu.Unlock()
	}()
	o := &OutOfMemory{Text: cause.Error(), Size: size, Stream: stream}
	errors.As(cause, &o.Facts)
	if r.opts.Clock != nil {
		o.TimeUS = r.opts.Clock()
	}
	path, err := r.write(o)
	if r.opts.Done != nil {
		r.opts.Done(path, err)
	}
}

// write writes the report of o, and returns its path.
func (r *Reporter) write(o *OutOfMemory) (string, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	d := reportDir(r.opts.Dir)
	number, room, err := d.room(r.opts.Max, r.opts.MaxBytes)
	if err != nil {
		return "", err
	}
	describe := func() []mem.SegmentInfo { return nil }
	if layer, ok := mem.Find[mem.Snapshotter](r.inner); ok {
		describe = layer.Snapshot
	}
	s := of(r.inner, describe, r.opts.Live)
	s.OutOfMemory = o
	return d.write(number, room, s.WritePickle)
}
