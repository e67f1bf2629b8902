// Package handover keeps track of which streams' queued work may still touch free memory, and makes a stream that the memory
// is handed to wait for it.
//
// An allocator that hands out memory in stream order, and across streams at once, keeps a Past with each free range: the
// streams that used it, and when it was freed. Ranges that merge have a past that is joined, those that are cut both have the
// whole. Before a range goes to a stream, Streams.Follow makes that stream wait for the past. A free needs no call of the
// device for that, nor does a range that no other stream used.
//
// # Time
//
// A wait makes one stream follow all that another has queued so far, so one is enough until memory that the other used is
// freed again: in the range in question, as far as that is known (a joined past has the time of the last free alone), or
// anywhere. Times are counted in waits: a free happens at the time of the last wait before it. A wait covers a past if it is
// later than that past, or later than every free of what the other stream used.
//
//	past of s, freed at 4      t waited for s at 5      covered
//	past of s, freed at 5      t waited for s at 5      not: the wait came first
//	past of s and u, 6         t waited for s at 5      covered still, if s has freed nothing since 5: 6 is u's
//
// What is on loan is not over: a wait for it is good for nothing that comes later, and OnLoan's past has no end.
//
// # Streams
//
// A Set is one word. While all its streams have numbers below 63 it is their bits. Other sets are in a table, each once, and the
// word is the place there: so the records of blocks and pages that hold sets stay small, and two sets are equal if their words
// are. An allocator whose sets are many (Crowded) says which it still has (Sweep), and the others leave the table.
//
// A stream that is closed has done its work, so nobody waits for it. One may get its number: that one has
// nothing to do with the past, and what the old one waited for is done, so the new one follows it too. Noting a stream takes a
// call of the device where another of its number was noted, and none else.
//
// A stream that captures a graph is not waited for: that is refused, with driver.ErrCapturing. A wait would draw the stream
// that waits into the capture, and not order it after what the other queued before.
//
// Nothing here is locked: the allocator's lock is held for every call. It knows no addresses, and forgets no stream before its
// number comes again or it is found closed.
package handover

import (
	"errors"
	"iter"
	"math"
	"math/bits"

	"github.com/ashlar-go/ashlar/driver"
)

// A Past is what may still touch memory: work that its users queued before its time. The zero Past is that of fresh memory.
type Past struct {
	Users Set
	time  uint64 // of Streams.clock
}

const always = math.MaxUint64 // the time of a past that is not over

// OnLoan is the past of memory that these streams use, and may go on to use.
func OnLoan(users Set) Past { return Past{users, always} }

// Streams are those that an allocator has to do with.
type Streams struct {
	dev   driver.Device
	owner string
	known []driver.Stream // by number; nil: none, or closed
	waits [][]uint64      // by number of the one that waits, then of the other: when it did last
	frees []uint64        // by number: when memory that it used was freed last
	clock uint64          // waits so far
	wide  wide
}

// New returns the streams of dev that a package's allocator deals with: none yet. Errors and panics have the package's name in
// front.
func New(dev driver.Device, owner string) *Streams { return &Streams{dev: dev, owner: owner} }

// Note returns the set of one stream, which is empty if that is closed already and another has its number. A nil stream
// panics.
func (t *Streams) Note(s driver.Stream) Set {
	if s == nil {
		panic(t.owner + ": a nil stream")
	}
	id := int(s.ID())
	for id >= len(t.known) {
		t.known, t.frees = append(t.known, nil), append(t.frees, 0)
	}
	if t.known[id] != s {
		// Of two of one number one is closed, and has done its work.
		if t.known[id] != nil {
			if _, err := s.Mark(); errors.Is(err, driver.ErrClosed) {
				return 0
			}
		}
		t.known[id] = s
	}
	if id < far {
		return 1 << id
	}
	return t.wide.single(id)
}

// All visits the streams of a set, by number, but for those that are known to be closed.
func (t *Streams) All(of Set) iter.Seq[driver.Stream] {
	return func(yield func(driver.Stream) bool) {
		if of&isWide != 0 {
			t.allWide(of, yield)
			return
		}
		for rest := of; rest != 0; rest &= rest - 1 {
			if s := t.known[bits.TrailingZeros64(uint64(rest))]; s != nil && !yield(s) {
				return
			}
		}
	}
}

// Noted visits all streams that were noted, by number, but for those that are known to be closed.
func (t *Streams) Noted() iter.Seq[driver.Stream] {
	return func(yield func(driver.Stream) bool) {
		for _, s := range t.known {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// Freed is the past of memory that these streams may still use, and that is freed now.
func (t *Streams) Freed(users Set) Past {
	if users&isWide != 0 {
		for id := range t.wide.numbers(users) {
			t.frees[id] = t.clock
		}
		return Past{users, t.clock}
	}
	for rest := users; rest != 0; rest &= rest - 1 {
		t.frees[bits.TrailingZeros64(uint64(rest))] = t.clock
	}
	return Past{users, t.clock}
}

// Join is the past of a range that two become.
func (t *Streams) Join(p, q Past) Past { return Past{t.Union(p.Users, q.Users), max(p.time, q.time)} }
