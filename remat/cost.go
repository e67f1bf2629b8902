package remat

import (
	"errors"
	"hash/maphash"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
	"github.com/ashlar-go/ashlar/tensor"
)

const (
	// enoughRuns is the number of runs that are timed for each kind of operation. Their minimum counts: a first run
	// loads kernels and fills caches.
	enoughRuns = 3
	// mostPending is the number of timed runs that may be unfinished at a time. Further runs are not timed.
	mostPending = 256
)

// costs are the times of operations, as the device's clock measures them.
type costs struct {
	stream  driver.Stream
	timing  driver.Timing // nil if the device has no clock
	kinds   map[uint64]*kind
	pending []*timedRun // in the order of the stream
	rate    float64     // ns for each byte that an operation reads and makes, of the runs measured so far
	bytes   int64       // of these runs
	ns      int64
}

// A kind is what is known of operations of one name and one set of shapes.
type kind struct {
	runs int   // timed
	ns   int64 // the least of those measured
	done int   // runs measured
}

// A timedRun is a run between two stamps.
type timedRun struct {
	c        *costs
	kind     *kind
	from, to driver.Stamp
	timed    bool
	bytes    int64
	work     *work
}

func newCosts(p *tensor.Place) *costs {
	return &costs{stream: p.Stream(), timing: p.Device().Timing(), kinds: map[uint64]*kind{}}
}

var seed = maphash.MakeSeed()

// costKey identifies operations of one name with inputs of the same types and shapes.
func costKey(name string, inputs []operand) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(name)
	for _, o := range inputs {
		h.WriteByte(byte(o.view.dtype))
		for _, n := range o.view.shape {
			maphash.WriteComparable(&h, n)
		}
		h.WriteByte(0xff)
	}
	return h.Sum64()
}

// begin starts a run of a kind.
func (c *costs) begin(key uint64) *timedRun {
	k := c.kinds[key]
	if k == nil {
		k = &kind{}
		c.kinds[key] = k
	}
	t := &timedRun{c: c, kind: k}
	if c.timing == nil || k.runs >= enoughRuns || len(c.pending) >= mostPending {
		return t
	}
	from, err := c.timing.Stamp(c.stream)
	if err != nil {
		return t // the operation itself reports what is wrong with the device
	}
	t.from, t.timed = from, true
	return t
}

// cancel ends a run that failed.
func (t *timedRun) cancel() {
	if t.timed {
		t.timed = false
		t.c.timing.Discard(t.from)
	}
}

// end ends a run of w, which read and made a number of bytes.
func (t *timedRun) end(w *work, bytes int64) {
	if !t.timed {
		return
	}
	to, err := t.c.timing.Stamp(t.c.stream)
	if err != nil {
		t.cancel()
		return
	}
	t.to, t.work, t.bytes, t.timed = to, w, max(bytes, 1), false
	t.kind.runs++
	t.c.pending = append(t.c.pending, t)
}

// known returns the measured time of the run's kind in ns, or 0.
func (t *timedRun) known() int64 {
	if t.kind.done == 0 {
		return 0
	}
	return t.kind.ns
}

// estimate returns the time of a run that read and made a number of bytes: that of runs of its kind or, until there is
// one, a time in proportion to the bytes.
func (t *timedRun) estimate(bytes int64) int64 {
	if ns := t.known(); ns > 0 {
		return ns
	}
	return max(int64(t.c.rate*float64(bytes)), 1)
}

// poll takes the times of the runs that are done.
func (c *costs) poll(e *schedule.Engine) {
	for len(c.pending) > 0 {
		t := c.pending[0]
		took, err := c.timing.Elapsed(t.from, t.to)
		if errors.Is(err, driver.ErrNotReady) {
			return
		}
		c.pending = c.pending[1:]
		c.timing.Discard(t.from)
		c.timing.Discard(t.to)
		if err != nil {
			continue
		}
		ns := max(took.Nanoseconds(), 1)
		if t.kind.done == 0 || ns < t.kind.ns {
			t.kind.ns = ns
		}
		t.kind.done++
		c.ns, c.bytes = c.ns+ns, c.bytes+t.bytes
		c.rate = float64(c.ns) / float64(c.bytes)
		if t.work.op != schedule.None {
			e.SetCost(t.work.op, t.kind.ns)
		}
	}
}

// close discards the stamps.
func (c *costs) close() error {
	var errs []error
	for _, t := range c.pending {
		errs = append(errs, c.timing.Discard(t.from), c.timing.Discard(t.to))
	}
	c.pending = nil
	return errors.Join(errs...)
}
