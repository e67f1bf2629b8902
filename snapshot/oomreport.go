package snapshot

import (
	"errors"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
	"github.com/ashlar-go/ashlar/mem"
)

// ReportOptions say where a Reporter writes, and how much.
type ReportOptions struct {
	Dir string // there must be such a directory when a report is written

	// Max is how many reports there may be in Dir, and MaxBytes how large they may be together, those of earlier runs and of
	// others included: then no more are written, until some are taken away. The first reports are the ones to look at, what
	// comes later is often their consequence. 0 is 16 reports and 1 GiB.
	Max      int
	MaxBytes int64

	// Live is what Of cannot ask the allocator for: with a recorder the reports have the history.
	Live Live

	// Clock, if not nil, tells when memory ran out, in microseconds since 1970, as trace.RecorderOptions.Clock does.
	Clock func() int64

	// Done, if not nil, is told of each report: the path of the file, or why there is none (ErrReportsFull, or what the
	// system said). It runs on the goroutine of the request, before that fails, and at the same time for several.
	Done func(path string, err error)
}

const (
	defaultReports     = 16
	defaultReportBytes = 1 << 30
)

// ErrReportsFull says that the directory has as many reports, or as many bytes of them, as it may.
var ErrReportsFull = errors.New("snapshot: no room for another report")

// A Reporter is an allocator that writes a report when memory runs out. See ReportOOM. Safe for concurrent use.
type Reporter struct {
	inner mem.Allocator
	opts  ReportOptions
	told  bool // by inner, of its errors

	mu   sync.Mutex
	busy []uintptr // goroutines that report

	writing sync.Mutex // held for one report at a time; mu may be taken under it
}

// ReportOOM returns an allocator that, when a has no room (an error that matches mem.ErrNoMemory), writes a file before the
// caller sees the error: a snapshot of a, as Of takes it, with its statistics, and with the error's text and facts
// (Snapshot.OutOfMemory), and the limit that a had (Snapshot.Limits). PyTorch's viewer opens it, "ashlar info" says what is in it, and with a history "ashlar replay" which
// settings would have let the request through. An allocator that describes no segments has a report without any. RMM's
// pools dump what they hold in the same way.
//
// If a itself has OnOutOfMemory, as mem/caching does, that is what tells of errors: those are reported too that are made
// for whoever uses a directly, and those that a layer above recovers from. Any other a is asked through the Reporter, so it
// belongs above whatever makes room and asks again, and above the layer of a recorder, whose history then ends with the
// failure.
//
// The files are oom-000001.pickle and so on, numbered on from the last that is there. Each appears with all that is in it, or
// not at all; a name that begins with .oom- is of one that is being written, or was when the process ended. A report takes
// as long as writing the snapshot does, and several wait for each other. A failure to write is ReportOptions.Done's to know:
// the request fails as it would have. No lock is held while Done runs. What allocates while a report is made, on the same
// goroutine, and finds no room, is not reported.
func ReportOOM(a mem.Allocator, o ReportOptions) *Reporter {
	if o.Max <= 0 {
		o.Max = defaultReports
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultReportBytes
	}
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
		r.look(s, size, err)
	}
	return b, err
}

// AllocWith implements mem.OptionsAllocator.
func (r *Reporter) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(r.inner, s, size, o)
	if err != nil && !o.Tentative {
		r.look(s, size, err)
	}
	return b, err
}

// Free implements mem.Allocator.
func (r *Reporter) Free(b mem.Block, used ...driver.Stream) { r.inner.Free(b, used...) }

// Movable implements mem.Mover: blocks are those of the layer below.
func (r *Reporter) Movable(b mem.Block, h mem.Holder) bool { return mem.Movable(r.inner, b, h) }

// Unwrap implements mem.Wrapper.
func (r *Reporter) Unwrap() mem.Allocator { return r.inner }

func (r *Reporter) look(s driver.Stream, size int64, err error) {
	var oom *mem.OutOfMemory
	untold := !r.told || errors.As(err, &oom) && oom.TooLarge // of which mem/caching tells nobody, as PyTorch does not
	if untold && errors.Is(err, mem.ErrNoMemory) {
		r.report(s.ID(), size, err)
	}
}

// report writes a report, unless this goroutine is writing one already.
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
