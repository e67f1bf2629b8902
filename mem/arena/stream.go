package arena

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/ashlar-go/ashlar/driver"
)

// A set is streams, by number: bit i is stream i, and bit far all streams from that number on together.
type set uint64

const far = 63

// A past is what may still touch a hole: work that the streams queued before its time.
type past struct {
	streams set
	time    uint64 // of streams.clock
}

// join is the past of a hole that two become.
func join(low, high past) past { return past{low.streams | high.streams, max(low.time, high.time)} }

// always is the time of a past that is not over: of blocks on loan.
const always = math.MaxUint64

// streams are those that the arena has to do with.
//
// A wait makes one stream follow all that another has queued so far, so one is enough until memory that the other used is
// freed again: in the hole in question, as far as that is known (past.time is of the last of its streams), or anywhere. Times
// are counted in waits.
type streams struct {
	known []driver.Stream // by number; nil: none, or closed
	waits []*[far]uint64  // by number of the one that waits, then of the other: when it did last
	frees [far]uint64     // by number: when memory that it used was freed last
	clock uint64
}

// note returns the set of one stream, which is empty if that is closed already.
func (t *streams) note(s driver.Stream) set {
	if s == nil {
		panic("arena: a nil stream")
	}
	id := int(s.ID())
	for id >= len(t.known) {
		t.known = append(t.known, nil)
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
	return 1 << min(id, far)
}

// each visits the streams of a set.
func (t *streams) each(of set, visit func(id int, s driver.Stream) error) error {
	for rest := of; rest != 0; rest &= rest - 1 {
		from := bits.TrailingZeros64(uint64(rest))
		to := from + 1
		if from == far {
			to = len(t.known)
		}
		for id := from; id < to; id++ {
			if s := t.known[id]; s != nil {
				if err := visit(id, s); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// now is the past of memory that streams may still use, and that is freed now.
func (t *streams) now(users set) past {
	for rest := users &^ (1 << far); rest != 0; rest &= rest - 1 {
		t.frees[bits.TrailingZeros64(uint64(rest))] = t.clock
	}
	return past{users, t.clock}
}

// list returns the streams of a set.
func (t *streams) list(of set) []driver.Stream {
	var all []driver.Stream
	_ = t.each(of, func(_ int, s driver.Stream) error {
		all = append(all, s)
		return nil
	})
	return all
}

// follows reports whether s has waited for all that a stream has to do with a past.
func (t *streams) follows(s driver.Stream, other int, p past) bool {
	id := int(s.ID())
	if id >= len(t.waits) || t.waits[id] == nil || other >= far || p.time == always {
		return false
	}
	return t.waits[id][other] > min(p.time, t.frees[other])
}

// wait notes that s follows a stream's work up to now.
func (t *streams) wait(s driver.Stream, other int) {
	t.clock++
	if other >= far {
		return
	}
	id := int(s.ID())
	for id >= len(t.waits) {
		t.waits = append(t.waits, nil)
	}
	if t.waits[id] == nil {
		t.waits[id] = new([far]uint64)
	}
	t.waits[id][other] = t.clock
}

// follow makes s wait for a past. If it fails, s waits for some of it.
func (a *Arena) follow(s driver.Stream, p past) error {
	if p.streams == 0 {
		return nil
	}
	return a.streams.each(p.streams, func(id int, other driver.Stream) error {
		if other == s || a.streams.follows(s, id, p) {
			return nil
		}
		closed, err := follow(a.dev.Graphs(), s, other)
		switch {
		case err != nil:
			return fmt.Errorf("arena: have stream %d wait for stream %d: %w", s.ID(), id, err)
		case closed:
			a.streams.known[id] = nil
		default:
			a.streams.wait(s, id)
		}
		return nil
	})
}

// follow makes s wait for the work queued on other so far. A stream that is closed has done its work. One that captures is
// not waited for: that would draw s into the capture, and what other queued before it would not be waited for.
func follow(graphs driver.Graphs, s, other driver.Stream) (closed bool, err error) {
	if err = notCapturing(graphs, other); err == nil {
		var m driver.Mark
		if m, err = other.Mark(); err == nil {
			err = s.WaitFor(other, m)
		}
	}
	if errors.Is(err, driver.ErrClosed) {
		if _, own := s.Mark(); own == nil {
			return true, nil
		}
	}
	return false, err
}

// notCapturing fails if a stream captures.
func notCapturing(graphs driver.Graphs, s driver.Stream) error {
	if graphs == nil {
		return nil
	}
	captures, err := graphs.Capturing(s)
	if captures {
		return &driver.Error{Call: "Stream.WaitFor", Code: driver.ErrCapturing, Detail: fmt.Sprintf("stream %d captures", s.ID())}
	}
	return err
}
