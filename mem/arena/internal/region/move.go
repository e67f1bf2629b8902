package region

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// A Move is a run of bytes that slides from From down to To. Sizes, and addresses relative to Base, are multiples of
// Grain.
type Move struct {
	To, From driver.Pointer
	Size     int64
}

// Move moves runs of bytes, in stream order on s. The moves must be ascending. The destinations must not overlap each
// other, nor the sources; a destination may overlap sources at or above it, whose bytes are moved before they are
// overwritten. All ranges must have memory. Other bytes in the destinations are overwritten, and the rest of the
// sources has undefined contents afterwards. Move panics if the list breaks one of these rules; runs before the one that
// does may have been moved.
//
// If it fails, moves[:n] are done or queued, and the others have no effect. Move queues the work and returns, unless it
// remaps pages: then it waits for s, and other streams must have finished with the memory when s reaches the move. It
// does not keep moves.
func (r *Region) Move(s driver.Stream, moves []Move) (n int, err error) {
	remaps := r.vm != nil && r.page >= r.remapFrom
	if remaps || r.kernel == nil { // otherwise pack does it
		r.validate(moves)
	}
	if r.lost != nil {
		return 0, r.lost
	}
	for i := 0; remaps && i < len(moves); i++ {
		t, ok := r.pageMoveOf(moves[i])
		if !ok {
			continue
		}
		done, err := r.copyAll(s, moves[n:i])
		if n += done; err != nil {
			return n, err
		}
		if err := r.remap(s, moves[i], t); err != nil {
			return n, failed(moves[i], err)
		}
		n++
	}
	done, err := r.copyAll(s, moves[n:])
	return n + done, err
}

// copyAll makes the moves without remapping.
func (r *Region) copyAll(s driver.Stream, moves []Move) (n int, err error) {
	switch {
	case r.kernel != nil:
		return r.launch(s, moves)
	case r.goKernels:
		return r.launchGo(s, moves)
	}
	return r.slideAll(s, moves)
}

// validate panics if the list of moves is invalid.
func (r *Region) validate(moves []Move) {
	var ends offsets
	for i := range moves {
		m := r.offsets(moves[i])
		if !m.follows(ends, r.size) {
			panic(r.invalid(moves, i))
		}
		ends = m.ends()
	}
}

// offsets are a move in bytes from the base. Those of an invalid move may have wrapped around.
type offsets struct{ to, from, size uint64 }

func (r *Region) offsets(m Move) offsets {
	return offsets{uint64(m.To - r.base), uint64(m.From - r.base), uint64(m.Size)}
}

// ends returns where the next move may begin.
func (o offsets) ends() offsets { return offsets{o.to + o.size, o.from + o.size, 0} }

// follows reports whether o is valid behind the ends of the move before, in a region of size bytes.
func (o offsets) follows(ends offsets, size int64) bool {
	return (o.to|o.from|o.size)%Grain == 0 && o.size-1 < uint64(size) && o.from <= uint64(size)-o.size &&
		o.to < o.from && o.to >= ends.to && o.from >= ends.from
}

// invalid is the panic's text for move i.
func (r *Region) invalid(moves []Move, i int) string {
	m := moves[i]
	return fmt.Sprintf("region: move %d of %d, of %d bytes from %#x to %#x: outside [%#x, +%d), out of order or not in "+
		"grains", i, len(moves), m.Size, m.From, m.To, r.base, r.size)
}

func failed(m Move, err error) error {
	return fmt.Errorf("region: move %d bytes from %#x to %#x: %w", m.Size, m.From, m.To, err)
}
