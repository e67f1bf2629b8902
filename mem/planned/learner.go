package planned

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// # Learner
//
//	recorder   divides the requests into steps (record.go)
//	packing    plans those that occurred twice, in a goroutine (learnedplan.go)
//	follower   finds each request in the planned steps (follow.go)
//
// A plan is advice: the placer below gives each block its planned address if that is free, and another one otherwise.
// So nothing depends on the plan being right, and the placer alone knows which memory is in use, by which streams.
//
// Planned addresses are for blocks that end in their step. Those that stay, of which a saved plan has a list
// (start.go), are in a row elsewhere, so steps need not be packed around them. If blocks stay at planned addresses all
// the same, the plan moves to others.
//
// The recorder sleeps once quietSteps steps in a row were as planned, until a request is unexpected.
//
// Learner.mu is not held while the placer is called.

// A Placer is an allocator that can place blocks at chosen addresses: mem/paged.
type Placer interface {
	mem.OptionsAllocator

	// Places returns the addresses at which AllocAt can place blocks, as their first and their number. They are the
	// same at each call, and serve AllocAt alone.
	Places() (driver.Pointer, int64, error)

	// AllocAt is AllocWith at an address of Places, if there is room, or else anywhere. With address 0 it places
	// blocks allocated in a row beside each other, if memory is ample.
	AllocAt(p driver.Pointer, s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error)
}

// LearnOptions are the options of a Learner.
type LearnOptions struct {
	// Plan is a plan to begin with: that of an earlier run, from Learner.Plan or Make (without Options.Apart). Its
	// device is not checked, since it is advice only. If it places blocks that outlive their step, its steps are packed
	// again without them.
	Plan *Plan
	// Background packs the steps in a goroutine. Otherwise a request waits for it, so that runs are repeatable.
	Background bool
	// Effort is the number of steps of packing (pack.Options.Steps); 0: greedy orders only.
	Effort int
	// Followed, if not nil, gets each plan once it was followed for some steps, in a goroutine of its own, one at a
	// time: to save it for the next run.
	Followed func(*Plan)
}

// A Learner plans a program while it runs. A step of the program is its requests between two moments at which the same
// memory is live. When a step has occurred twice, its blocks get planned addresses, packed. Steps of several shapes
// get a plan each, for the same addresses, and may follow each other in any order. Blocks that outlive their step, such
// as weights, and blocks of at most 4 KiB are not planned. A request that departs from what was learned, and one whose
// planned address is in use, is served as without a plan.
//
// All memory is that of the placer below, as are limits, statistics, snapshots and pauses, which mem.Find finds there.
//
// A Learner is safe for concurrent use.
type Learner struct {
	below   Placer
	dev     driver.Device
	opts    LearnOptions
	base    driver.Pointer // of the places
	size    int64          // of the places from base on
	awake   atomic.Bool    // the recorder records
	packing chan []*step

	reports   sync.WaitGroup // running calls of Followed
	reporting sync.Mutex     // held by one of them

	mu       sync.Mutex
	rec      recorder
	follow   *follower
	kept     keptSizes
	start    starts    // the rest of LearnOptions.Plan.Start
	plan     []*step   // the steps that follow looks for
	busy     bool      // steps are being packed
	settled  bool      // a planned step was followed as a whole
	quiet    int       // number of steps in a row that were as planned
	clean    bool      // the present step is as planned so far
	begun    int       // steps that began since the plan was made
	tallest  *followed // of the steps counted by begun, the one with the most memory
	trimmed  bool      // unused memory was freed since the plan was made, or since the last departure
	trimFrom int       // the value of begun from which on unused memory may be freed
	found    obstacles // to the plan, in the present step and in those before it
	reported int64     // the number of the plan that Followed got last
	counts   Learned
}

// Learned are the figures of a Learner.
type Learned struct {
	Steps    int   // different steps in the plan
	Plans    int64 // plans that were made, or moved to other addresses
	Planned  int64 // requests that were expected
	Placed   int64 // expected requests that got their planned address
	Departed int64 // requests that were not expected, while there was a plan
}

const (
	smallest   = 4 << 10 // bytes of a block that is not planned
	quietSteps = 4       // value of Learner.quiet at which the recorder stops, until a request is unexpected
	mostRows   = 3       // recorder.deepLows from which on no more blocks are placed in rows
)

// NewLearner returns a Learner for an allocator of dev, which Close closes. The error is that of the allocator's
// Places, or describes an unusable plan; then the caller still owns the allocator.
func NewLearner(dev driver.Device, below Placer, o LearnOptions) (*Learner, error) {
	l := &Learner{below: below, dev: dev, opts: o, packing: make(chan []*step, 1), follow: newFollower(nil)}
	var err error
	if l.base, l.size, err = below.Places(); err != nil {
		return nil, fmt.Errorf("planned: %w", err)
	}
	if o.Plan != nil {
		if l.rec.steps, err = stepsOf(o.Plan); err != nil {
			return nil, err
		}
		l.rec.number = len(l.rec.steps)
		l.start = startsOf(o.Plan.Start)
		l.use(l.rec.repeated())
		l.reported = l.counts.Plans
		l.pack()
	}
	l.rec.restart()
	l.awake.Store(true)
	return l, nil
}

// Alloc implements mem.Allocator. The error is that of the placer.
func (l *Learner) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return l.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. Requests with a Key are not planned.
func (l *Learner) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("planned: Alloc", s)
	size, o = o.Rounded(size)
	id := int(s.ID())
	if size <= 0 || size > maxRequest || o.Key != nil || id >= maxStreams {
		b, err := l.below.AllocWith(s, size, o)
		if err == nil && size > 0 && l.awake.Load() {
			l.servedUnplanned(b)
		}
		return b, err
	}
	to := l.advise(id, size)
	var b mem.Block
	var err error
	if to.known {
		b, err = l.below.AllocAt(to.at, s, size, o)
	} else {
		b, err = l.below.AllocWith(s, size, o)
	}
	if err == nil && (to.at != 0 || l.awake.Load()) {
		l.served(id, size, b, to.at)
	}
	if to.fullest && !o.NoRetry {
		l.trim()
	}
	return b, err
}

// An advice is for one request.
type advice struct {
	known   bool           // the block goes to at; otherwise the placer chooses freely
	at      driver.Pointer // planned address; 0: beside the last block for which it was 0
	fullest bool           // unused memory is to be freed after this request: see Learner.fullest
}

// advise returns the advice for a request.
func (l *Learner) advise(stream int, size int64) advice {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.packing) > 0 && (l.follow.between() || !l.clean) {
		l.use(<-l.packing)
	}
	stays, known := l.start.next(size)
	if stays {
		return advice{known: true}
	}
	stays = !known && l.stays(size)
	if len(l.plan) == 0 {
		return advice{known: stays}
	}
	slot, begins := l.follow.request(keyOf(size, stream), l.settled || l.kept.known)
	if slot == nil {
		l.counts.Departed++
		l.found.other = true
		l.departed()
		return advice{known: stays}
	}
	if begins {
		l.stepBegins()
	}
	l.counts.Planned++
	if slot.Offset < 0 {
		return advice{known: stays}
	}
	to := advice{known: true, at: l.base + driver.Pointer(slot.Offset), fullest: l.fullest(slot)}
	if to.fullest {
		l.trimmed, l.trimFrom = true, 2*l.begun
	}
	return to
}

// stays reports whether a block without a planned address is to be beside others that stay. The caller holds mu.
// After the first steps, nothing is allocated any more that stays.
func (l *Learner) stays(size int64) bool {
	return !l.settled && l.rec.deepLows < mostRows && l.kept.likely(size)
}

// stepBegins counts the step before. The caller holds mu.
func (l *Learner) stepBegins() {
	if l.clean {
		l.settled = true
		if l.quiet++; l.quiet == 1 {
			l.rec.first.mark(l.rec.end())
		}
		if l.quiet >= quietSteps && !l.busy {
			l.awake.Store(false)
			l.rec.first.end()
			l.start = nil
			l.report()
		}
	}
	if l.found.step() {
		l.move()
	}
	l.clean = true
	l.begun++
	if now := l.follow.now; l.tallest == nil || now.most > l.tallest.most {
		l.tallest = now
	}
}

// fullest reports whether unused memory is to be freed after a request. It is the request at the peak of the step with
// the most memory, so memory that is unused then is not needed. After a departure memory is freed again, each time
// after twice as many steps. The caller holds mu.
func (l *Learner) fullest(slot *Slot) bool {
	if l.trimmed || !l.clean || l.tallest == nil || slot != &l.tallest.slots[l.tallest.fullest] ||
		l.begun <= l.trimFrom {
		return false
	}
	return !slices.ContainsFunc(l.rec.steps, func(s *step) bool { return s.most > l.tallest.most })
}

// report passes the plan to Followed, if it is a new one. The caller holds mu.
func (l *Learner) report() {
	if l.opts.Followed == nil || l.reported == l.counts.Plans {
		return
	}
	l.reported = l.counts.Plans
	p := l.planOf()
	l.reports.Add(1)
	go func() {
		defer l.reports.Done()
		l.reporting.Lock()
		defer l.reporting.Unlock()
		l.opts.Followed(p)
	}()
}

// departed notes a request that was not as planned, and wakes the recorder. The caller holds mu.
func (l *Learner) departed() {
	l.clean, l.quiet, l.trimmed = false, 0, false
	if !l.awake.Load() {
		l.rec.restart()
		l.awake.Store(true)
	}
}

// served records a request that got a block.
func (l *Learner) served(stream int, size int64, b mem.Block, planned driver.Pointer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch planned {
	case 0:
	case b.Ptr:
		l.counts.Placed++
		l.found.placed += size
	default:
		l.found.missed += size
		l.departed()
	}
	if !l.settled {
		l.kept.alloc(b.Ptr, b.Size)
	}
	if l.awake.Load() && l.rec.alloc(stream, b.Ptr, size, b.Size) && !l.busy {
		l.pack()
	}
}

// servedUnplanned counts the memory of a request that is never planned, as Free does.
func (l *Learner) servedUnplanned(b mem.Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled {
		l.kept.alloc(b.Ptr, b.Size)
	}
	if l.awake.Load() && l.rec.grow(b.Size) && !l.busy {
		l.pack()
	}
}

// trim frees the memory that nothing uses, when most memory of the plan is in use: what is idle then is not needed.
func (l *Learner) trim() {
	if t, ok := mem.Find[mem.Trimmer](l.below); ok {
		_ = t.EmptyCache() // if that fails, the memory stays
	}
}

// Free implements mem.Allocator.
func (l *Learner) Free(b mem.Block, used ...driver.Stream) {
	if b != (mem.Block{}) && l.awake.Load() {
		l.mu.Lock()
		if l.awake.Load() {
			l.rec.free(b.Ptr, b.Size)
			l.kept.free(b.Ptr)
		}
		l.mu.Unlock()
	}
	l.below.Free(b, used...)
}

// Learned returns the figures.
func (l *Learner) Learned() Learned {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Unwrap implements mem.Wrapper: it returns the placer.
func (l *Learner) Unwrap() mem.Allocator { return l.below }

// Close closes the placer, if it is an io.Closer. Live blocks are an error; then the Learner stays open.
func (l *Learner) Close() error {
	l.mu.Lock()
	if l.busy {
		l.use(<-l.packing)
	}
	l.mu.Unlock()
	l.reports.Wait()
	if c, ok := l.below.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
