// Package reuse records which streams may still access free memory, and makes a stream wait for them before it reuses
// that memory.
//
// An allocator keeps Dependencies with each free range: the streams that used it, and the time of its free. Before it
// allocates the range for a stream, it calls Streams.Wait. A free makes no driver call for this, and neither does an
// allocation whose memory no other stream used. Errors and panics have the allocator's name in front. Nothing here is
// locked: the allocator holds its lock during every call.
package reuse

import (
	"errors"
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// # Time
//
// A wait makes one stream follow all that another stream has queued so far. It stays sufficient until memory that the
// other stream used is freed again. Times are counted in waits: a free happens at the time of the last wait before it.
// A wait covers a dependency if it is later than the dependency's time, or later than every free of memory that the
// other stream used.
//
//	dependency on s, freed at 4    t waited for s at 5    covered
//	dependency on s, freed at 5    t waited for s at 5    not covered: the wait came first
//	dependency on s and u, at 6    t waited for s at 5    covered if s has freed nothing since 5: the 6 is u's
//
// Ranges that merge merge their dependencies, with the later of the two times. Ranges that are split both keep all
// dependencies. Memory in use (InUse) has the time neverDone: no wait covers work that may still be queued.
//
// # Closed and capturing streams
//
// A closed stream has done its work, so no stream waits for it. A new stream may get its number; a call of the device
// distinguishes the two when the second one is registered. If that call fails, the other stream is asked; if that fails
// too, both are kept and waited for, until a later call tells. A stream that captures a graph cannot be waited for: the
// wait would draw the waiting stream into the capture and would not order it after earlier work. Wait then fails with
// driver.ErrCapturing.

// Dependencies are the streams that may still access free memory: those whose work was queued before the memory was
// freed. The zero value is that of new memory.
type Dependencies struct {
	Users Set
	time  uint64 // of Streams.clock
}

const neverDone = math.MaxUint64 // the time of memory that is still in use

// InUse returns the dependencies of memory that these streams use now, and may use later.
func InUse(users Set) Dependencies { return Dependencies{users, neverDone} }

// Streams holds the streams that one allocator has seen.
type Streams struct {
	dev      driver.Device
	owner    string
	streams  []driver.Stream // by ID; nil: unknown or closed
	unsure   []driver.Stream // further streams with the ID of one in streams; of all with one ID, one at most is open
	waits    [][]uint64      // waits[s][u]: the time of the last wait of s for u, by IDs
	frees    []lastFree      // by ID
	clock    uint64          // number of waits so far
	freed    uint64          // number of frees so far
	overflow overflowTable
}

// A lastFree is the last free of memory that a stream used.
type lastFree struct {
	time   uint64 // of Streams.clock
	number uint64 // of Streams.freed
}

// New returns an empty Streams for an allocator of dev's memory. Errors and panics begin with owner, the name of the
// allocator's package.
func New(dev driver.Device, owner string) *Streams { return &Streams{dev: dev, owner: owner} }

// Register returns the set that holds s alone. The set is empty if s is closed and another stream has its number. A nil
// stream panics.
func (t *Streams) Register(s driver.Stream) Set {
	if s == nil {
		panic(t.owner + ": a nil stream")
	}
	id := int(s.ID())
	if id < min(len(t.streams), firstOverflow) && t.streams[id] == s {
		return 1 << id
	}
	return t.registerNew(s, id)
}

// registerNew is Register for a stream that may be new.
func (t *Streams) registerNew(s driver.Stream, id int) Set {
	for id >= len(t.streams) {
		t.streams, t.frees = append(t.streams, nil), append(t.frees, lastFree{})
	}
	if old := t.streams[id]; old == nil {
		t.streams[id] = s
	} else if old != s {
		return t.registerOneOf(s, old)
	}
	return t.single(id)
}

// registerOneOf is Register for one of two streams with the same ID. One of them is closed, and Mark tells which unless
// the device fails.
func (t *Streams) registerOneOf(s, old driver.Stream) Set {
	_, err := s.Mark()
	if err == nil {
		t.keepOnly(s)
		return t.single(int(s.ID()))
	}
	if errors.Is(err, driver.ErrClosed) {
		t.forget(s)
		return 0
	}
	_, err = old.Mark()
	if err == nil {
		t.keepOnly(old)
		return 0
	}
	if errors.Is(err, driver.ErrClosed) {
		t.forget(old)
		return t.Register(s)
	}
	if !slices.Contains(t.unsure, s) {
		t.unsure = append(t.unsure, s)
	}
	return t.single(int(s.ID()))
}

// keepOnly notes that of the streams with the ID of s, s is open.
func (t *Streams) keepOnly(s driver.Stream) {
	t.streams[s.ID()] = s
	t.unsure = slices.DeleteFunc(t.unsure, func(other driver.Stream) bool { return other.ID() == s.ID() })
}

// forget notes that s is closed.
func (t *Streams) forget(s driver.Stream) {
	if t.streams[s.ID()] == s {
		t.streams[s.ID()] = nil
		if i := slices.IndexFunc(t.unsure, func(other driver.Stream) bool { return other.ID() == s.ID() }); i >= 0 {
			s = t.unsure[i]
			t.streams[s.ID()] = s
		}
	}
	t.unsure = slices.DeleteFunc(t.unsure, func(other driver.Stream) bool { return other == s })
}

// single returns the set of the registered stream with an ID.
func (t *Streams) single(id int) Set {
	if id < firstOverflow {
		return 1 << id
	}
	return t.overflow.single(id)
}

// All visits the streams of a set by ID, except those known to be closed.
func (t *Streams) All(of Set) iter.Seq[driver.Stream] {
	return func(yield func(driver.Stream) bool) {
		if len(t.unsure) > 0 {
			t.allWithUnsure(of, yield)
			return
		}
		if of&overflowBit != 0 {
			t.allOverflow(of, yield)
			return
		}
		for rest := of; rest != 0; rest &= rest - 1 {
			if s := t.streams[bits.TrailingZeros64(uint64(rest))]; s != nil && !yield(s) {
				return
			}
		}
	}
}

// allWithUnsure is All while there are unsure streams.
func (t *Streams) allWithUnsure(of Set, yield func(driver.Stream) bool) {
	for s := range t.Registered() {
		if t.Overlap(of, t.single(int(s.ID()))) && !yield(s) {
			return
		}
	}
}

// Registered visits all registered streams by ID, except those known to be closed.
func (t *Streams) Registered() iter.Seq[driver.Stream] {
	return func(yield func(driver.Stream) bool) {
		unsure := slices.Clone(t.unsure) // the loop's body may change it
		for _, s := range t.streams {
			if s != nil && !yield(s) {
				return
			}
		}
		for _, s := range unsure {
			if !yield(s) {
				return
			}
		}
	}
}

// Freed returns the dependencies of memory that is freed now, and that these streams may still access.
func (t *Streams) Freed(users Set) Dependencies {
	t.freed++
	now := lastFree{t.clock, t.freed}
	if users&overflowBit != 0 {
		for id := range t.overflow.numbers(users) {
			t.frees[id] = now
		}
		return Dependencies{users, t.clock}
	}
	for rest := users; rest != 0; rest &= rest - 1 {
		t.frees[bits.TrailingZeros64(uint64(rest))] = now
	}
	return Dependencies{users, t.clock}
}

// Frees returns how often Freed was called.
func (t *Streams) Frees() uint64 { return t.freed }

// LastFree returns the value of Frees after the last free of memory that a registered stream used, or a later one if
// it has the ID of a closed stream.
func (t *Streams) LastFree(s driver.Stream) uint64 { return t.frees[s.ID()].number }

// Merge returns the dependencies of two ranges that become one.
func (t *Streams) Merge(p, q Dependencies) Dependencies {
	p.Users, p.time = t.Union(p.Users, q.Users), max(p.time, q.time)
	return p
}
