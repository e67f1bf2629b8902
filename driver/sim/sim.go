// Package sim is a simulated device for tests and for replaying recordings: deterministic, of any capacity, and strict.
// It implements package driver without hardware.
//
//	dev := sim.New(sim.Options{Total: 1 << 30})
//	defer dev.Close()
//
// It is registered as "sim": driver.Open("sim:total=1GiB") opens one, see Open for the arguments. New returns a
// *Device, with which a test controls when queued work completes (Hold, Advance, Complete, Resume, Occupy).
//
// The device checks each access: an address that is free, unmapped or outside its allocation is an *AccessError, and
// two accesses to the same memory that the program does not order, at least one of them a write, are a *RaceError,
// however they happened to complete. Reports and Leaks list them and what was left open.
//
// Time is virtual: each call adds its cost by a CostModel to Now. Sizes are bytes. A Device is safe for concurrent use,
// and never blocks: a call that has to wait completes the work that it waits for. Compute time is not modelled, races
// on host memory are not found, and Peers and Sharing are nil.
package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// # Structure
//
// Memory. Addresses are assigned first fit, so that freed ones are reused and uses of stale addresses behave as on a
// real device. Contents are exact but sparse (contents.go): a Fill of 100 GiB takes one record, and unwritten memory
// reads as noise that differs between allocations.
//
// Time. No clock is read. Each call adds its cost by a CostModel (cost.go, read from a file: costfile.go) to the
// virtual time Now, as though the caller waited for all of it; work on different streams does not overlap in that time.
// A stamp (timing.go) is the virtual time at which the stream reached it.
//
// Order. A call to a stream queues work. By default the work completes at once, unless it waits for a stream that is
// held. Tests change this by Hold, Advance, Complete and Resume, or by a seed (queue.go); Occupy stands for work of
// unknown length (occupy.go). A call that must wait (Sync, CopyOut, Free, Close) completes the work that it waits for,
// held or not, and all that this work depends on: no call of this package blocks. A copy from or to page-locked memory
// (pinned.go) reads or writes that memory when it completes, so it detects memory that is reused too early.
//
// Graphs. While a stream captures (capture.go), work on it is recorded by its addresses, which are looked up at each
// launch (graph.go). A launch is one piece of work. The checks below see the accesses of the recorded work, on the
// stream of the launch; two conflicting accesses that the captured program does not order are a race.
//
// Checks. Every access that a call declares is looked up when the call is made: an address that is free, or reserved
// but not mapped, or a range that leaves its allocation, is an *AccessError. Two accesses to the same bytes of memory
// (not of addresses: a page may have several), at least one of them a write, must be ordered by the program: on one
// stream, by Mark and WaitFor, or by a wait of the host (Sync, CopyOut, a Reached that returned true, Free, Close of a
// stream). If they are not, they are a *RaceError, in whatever order they completed (clock.go, shadow.go). The host is
// one thread of control: two calls are ordered as they were made.
//
// # Data structures and invariants
//
//	allocs, reservations   disjoint intervals of addresses; space: the holes between them
//	object                 the memory of one allocation or page: contents, and the shadow of its last accesses
//	timeline               one stream number's queue and clock, with done <= queued; it outlives the stream, so that
//	                       ticks continue when a number is used again
//	used                   = bytes of allocations + bytes of pages that are not dropped or still mapped <= Total
//	locked                 = bytes of page-locked memory <= Pinned
//	capture                the work that some streams record; each has a branch of at most one capture, until End
//
// One mutex guards the device; kernels' functions run under it. There are no goroutines, and nothing depends on the
// order of a map.
//
// The default stream is a stream like any other: work on it does not wait for other streams, nor they for it.

// Options describe a device. The zero value is an NVIDIA H200 whose work completes at once.
type Options struct {
	Total           int64          // bytes of memory, at most MaxTotal; 0 is 150,109,880,320, an H200's
	Granularity     int64          // bytes, a power of two; 0 is 2 MiB
	Alignment       int64          // bytes, a power of two; 0 is 512
	Base            driver.Pointer // lowest address, a multiple of both; 0 is 0x7f0000000000
	NoVirtualMemory bool           // VirtualMemory returns nil
	Pinned          int64          // bytes of host memory that may be page-locked at once; 0 is 16 GiB
	Ordinal         int            // Info().Ordinal: for programs that open several and tell them apart

	Seed       uint64     // of the noise in fresh memory and of AtRandom
	Completion Completion // when queued work completes
	Cost       *CostModel // nil is H200()

	// Unchecked turns the race detector off: faster, and no memory of past accesses. Addresses are still checked.
	Unchecked bool
	// ReportOnly permits work with a race: the race is in Reports, but the call does not fail.
	ReportOnly bool
	// CallSites puts the file and line of the caller into accesses: about a microsecond each.
	CallSites bool
}

// Completion says when work completes for which no call waits.
type Completion uint8

const (
	AtOnce   Completion = iota // when it is queued, unless its stream is held or it waits for one that is
	AtRandom                   // at some later call, in an order that the seed chooses among those that are allowed
	OnDemand                   // every stream is held from the start
)

// MaxTotal is the most memory that a device can have, in bytes: 32,768 TiB.
const MaxTotal = 1 << 55

const (
	defaultTotal       = 150_109_880_320
	defaultGranularity = 2 << 20
	defaultAlignment   = 512
	defaultBase        = 0x7f00_0000_0000
	defaultPinned      = 16 << 30
	reservedAddresses  = 1 << 47 // bytes of addresses for reservations at least
)

// A Device is a simulated device. It is safe for concurrent use.
type Device struct {
	opts  Options
	info  driver.Info
	model *CostModel

	mu     sync.Mutex
	closed bool
	seq    uint64 // number of the current call, from 1
	now    time.Duration
	calls  Calls
	hash   uint64
	rng    *rand.Rand

	used         int64
	objects      uint64 // made so far: each has its own noise
	allocs       index[*object]
	large, small space // addresses of allocations: whole granules, and granules to share
	reservations index[*reservation]
	reservable   space
	pages        map[uint64]*page // neither dropped nor unmapped everywhere
	lastPage     uint64
	freed        []freedRange // the last ones, a ring
	freedNext    int

	pinned    index[*region] // by the addresses of Go's slices
	locked    int64
	stamps    map[uint64]*stamp
	lastStamp uint64
	graphs    map[uint64]*graph
	lastGraph uint64

	timelines      []*timeline
	idle           []driver.StreamID // of closed streams, descending
	standard       *Stream
	runnable       []*timeline // not held, with work queued
	queued         int         // pieces of work in all queues
	host           clock       // the work that the host knows to be done
	hostGeneration uint64      // how often host changed

	reports []error
	leaks   *Leaks  // found by Close
	reads   []piece // scratch of one call, from here on
	writes  []piece
	claims  []claim
}

// New returns a new device. It panics if an option is out of range.
func New(opts Options) *Device {
	if err := opts.complete(); err != nil {
		panic("driver/sim: New: " + err.Error())
	}
	d := &Device{
		opts:  opts,
		model: opts.Cost,
		pages: map[uint64]*page{}, stamps: map[uint64]*stamp{}, graphs: map[uint64]*graph{},
		rng: rand.New(rand.NewPCG(opts.Seed, 0xa51a)),
		info: driver.Info{
			Driver: "sim", Name: "simulated NVIDIA H200", Ordinal: opts.Ordinal, TotalMemory: opts.Total,
			Alignment: opts.Alignment, Granularity: opts.Granularity,
		},
	}
	if opts.NoVirtualMemory {
		d.info.Granularity = 0
	}
	// Memory has more addresses than bytes, so that the last byte can be allocated however fragmented the addresses
	// are.
	const step = 1 << 40
	addresses := max(16*step, (4*uint64(opts.Total)+step-1)&^(step-1))
	d.large.give(uint64(opts.Base), addresses)
	d.reservable.give(uint64(opts.Base)+addresses, max(reservedAddresses, addresses))
	d.standard = &Stream{d: d, timeline: d.newTimeline()}
	return d
}

// complete fills in defaults, and returns an error for an invalid option.
func (o *Options) complete() error {
	set := func(v *int64, to int64) {
		if *v == 0 {
			*v = to
		}
	}
	set(&o.Total, defaultTotal)
	set(&o.Granularity, defaultGranularity)
	set(&o.Alignment, defaultAlignment)
	set(&o.Pinned, defaultPinned)
	o.Base = cmp.Or(o.Base, defaultBase)
	if o.Cost == nil {
		o.Cost = standard()
	}
	powerOfTwo := func(n int64) bool { return n > 0 && n&(n-1) == 0 }
	switch {
	case o.Total < 0 || o.Total > MaxTotal:
		return fmt.Errorf("total %d: want 1 to %d bytes (%s)", o.Total, int64(MaxTotal), bytesize.Exact(MaxTotal))
	case !powerOfTwo(o.Granularity) || o.Granularity > 1<<40:
		return fmt.Errorf("granularity %d: want a power of two, at most 1TiB", o.Granularity)
	case !powerOfTwo(o.Alignment) || o.Alignment > 1<<40:
		return fmt.Errorf("alignment %d: want a power of two, at most 1TiB", o.Alignment)
	case o.Base%driver.Pointer(max(o.Granularity, o.Alignment)) != 0 || o.Base > 1<<62:
		return fmt.Errorf("base %#x: want a multiple of the granularity %d and the alignment %d, at most 2^62",
			o.Base, o.Granularity, o.Alignment)
	case o.Pinned < 0:
		return fmt.Errorf("pinned %d: want a positive size", o.Pinned)
	case o.Ordinal < 0:
		return fmt.Errorf("ordinal %d: want a number from 0", o.Ordinal)
	case o.Completion > OnDemand:
		return fmt.Errorf("completion %d: want AtOnce, AtRandom or OnDemand", o.Completion)
	}
	return o.Cost.check()
}

// Info describes the device.
func (d *Device) Info() driver.Info { return d.info }

// Processes returns an error: no process has memory of a simulated device.
func (d *Device) Processes() ([]driver.ProcessMemory, error) {
	return nil, &driver.Error{
		Call: "Processes", Code: driver.ErrUnsupported, Detail: "no process has a simulated device's memory",
	}
}

// Peers is nil: a device cannot access the memory of another.
func (d *Device) Peers() driver.Peers { return nil }

// Sharing is nil: no other process can see the device.
func (d *Device) Sharing() driver.Sharing { return nil }

// Visible is nil: Go code cannot access simulated memory.
func (d *Device) Visible() driver.Visible { return nil }

// Close completes all queued work, then frees everything. Leaks afterwards lists what was freed. Close returns the
// errors of kernels that no Sync has returned yet.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.syncAll()
	var err error
	for _, tl := range d.timelines {
		err = tl.takeError(err)
	}
	d.leaks = d.alive()
	d.closed = true
	d.used = 0
	d.allocs, d.reservations, d.pages = index[*object]{}, index[*reservation]{}, nil
	d.pinned, d.stamps, d.graphs = index[*region]{}, nil, nil
	return err
}
