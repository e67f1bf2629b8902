package replay

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/trace"
)

// A simulation is a run of a program on a new allocator of a new device, simulated unless open is set.
type simulation struct {
	work       *Work
	ops        *trace.Program // the ops to run; nil means all ops of the work
	spec       *Spec
	limit      int64 // bytes; 0 is none
	capacity   int64
	open       func(capacity int64) (driver.Device, error) // nil: simulated
	opts       Options
	ungauged   bool                // do not measure the driver use
	onAlloc    func(n int)         // receives the number of calls of Alloc, if not nil
	afterAlloc func()              // is called after each call of Alloc, if not nil
	atEnd      func(mem.Allocator) // called with the allocator after the run, if not nil
	// beforeRun is called with the allocator before the run, if not nil.
	beforeRun func(mem.Allocator)
	observe   func(allocs int, e mem.Event)
}

// A simulationResult is a Result with the figures of the allocator and of the device.
type simulationResult struct {
	Result
	retries int64
	moves   *arena.MoveStats // nil for an allocator that moves no blocks
	priced  bool
	use     verify.DriverUse
	later   *Later // nil if the run ended before
}

func (r *simulation) do() (res simulationResult, err error) {
	var dev driver.Device
	if r.open == nil {
		dev = sim.New(sim.Options{Unchecked: true, Total: r.capacity})
	} else if dev, err = r.open(r.capacity); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	ops, opts := r.ops, r.opts
	if ops == nil {
		ops = r.work.Program
	}
	g := &gauge{after: thirdOf(ops)}
	if s, ok := dev.(*sim.Device); ok {
		res.priced = true
		g.read = func() verify.DriverUse { return simulatedUse(s) }
		opts.occupied = opts.Contents == NoContents
	} else {
		m := newMetered(dev, opts.Now)
		g.read, dev = m.used, m
	}
	if !r.ungauged {
		opts.gauge = g
	}
	a, err := r.spec.open(r.work, dev, r.limit)
	if err != nil {
		return res, err
	}
	if r.beforeRun != nil {
		r.beforeRun(a)
	}
	if r.onAlloc != nil || r.afterAlloc != nil || r.observe != nil {
		counter := &counted{below: a, on: r.onAlloc, after: r.afterAlloc}
		if o, ok := mem.Find[observable](a); ok && r.observe != nil {
			o.Observe(func(e mem.Event) { r.observe(counter.n, e) })
			defer o.Observe(nil)
		}
		a = counter
	}
	res.Result, err = Run(ops, a, dev, opts)
	if err != nil {
		return res, err
	}
	if s, ok := mem.Find[mem.StatsReporter](a); ok {
		stats := s.Stats()
		res.retries = stats.NumAllocRetries
		if r.work.Program.Stats().Attempts > 0 {
			// A Result does not count attempts. A successful attempt counts here, as it would have in the recording.
			res.RequestedPeak = max(res.RequestedPeak, stats.RequestedBytes.All.Peak)
			res.AllocatedPeak = max(res.AllocatedPeak, stats.AllocatedBytes.All.Peak)
		}
	}
	if m, ok := mem.Find[interface{ Moves() arena.MoveStats }](a); ok {
		moves := m.Moves()
		res.moves = &moves
	}
	res.use, res.later = g.all, g.later()
	if res.later != nil {
		res.later.Recorded = r.work.recorded(g.after, res.Ops)
	}
	if r.atEnd != nil {
		r.atEnd(a)
	}
	return res, nil
}

// observable is an allocator that reports its events.
type observable interface{ Observe(mem.Observer) }

// counted is a mem.Wrapper that counts requests.
type counted struct {
	below mem.Allocator
	n     int // calls of Alloc, including the current one
	on    func(n int)
	after func()
}

// Unwrap implements mem.Wrapper.
func (c *counted) Unwrap() mem.Allocator { return c.below }

// Alloc implements mem.Allocator.
func (c *counted) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	c.n++
	if c.on != nil {
		c.on(c.n)
	}
	b, err := c.below.Alloc(s, size)
	if c.after != nil {
		c.after()
	}
	return b, err
}

// Free implements mem.Allocator.
func (c *counted) Free(b mem.Block, used ...driver.Stream) { c.below.Free(b, used...) }

// Movable implements mem.Mover.
func (c *counted) Movable(b mem.Block, h mem.Holder) bool { return mem.Movable(c.below, b, h) }

// usageAtPeak runs the program twice more on a simulated device: once to find the request at which the reserved memory
// first reached its peak, and once up to that request, to read the usage. It returns zero for allocators that do not
// report their segments or events.
func (r *simulation) usageAtPeak() (u verify.Usage) {
	var sums trace.Totals
	at := 0
	find := simulation{work: r.work, spec: r.spec, limit: r.limit, capacity: r.capacity}
	find.observe = func(n int, e mem.Event) {
		before := sums.Reserved.Peak
		if sums.Add(e.Action, e.Size); sums.Reserved.Peak > before {
			at = n
		}
	}
	if _, err := find.do(); err != nil || at == 0 {
		return u
	}
	prefix := *r.work.Program
	ops := prefix.Ops
	for i := range ops {
		if ops[i].Kind != trace.OpAlloc && ops[i].Kind != trace.OpTry {
			continue
		}
		if at--; at == 0 {
			ops = ops[:i+1]
			break
		}
	}
	prefix.Ops = ops
	upTo := simulation{work: r.work, ops: &prefix, spec: r.spec, limit: r.limit, capacity: r.capacity}
	upTo.atEnd = func(a mem.Allocator) {
		if s, ok := mem.Find[mem.Snapshotter](a); ok {
			u = verify.UsageOf(s.Snapshot())
		}
	}
	if _, err := upTo.do(); err != nil {
		return verify.Usage{}
	}
	return u
}
