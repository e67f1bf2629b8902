package region

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// A Move is a run of bytes that slides from From down to To. Addresses, counted from Base, and sizes are multiples of
// Grain.
type Move struct {
	To, From driver.Pointer
	Size     int64
}

// Move moves runs of bytes, in stream order on s: when all that was queued on s before is done, and before all that is
// queued later. The moves ascend, and the ranges that they go to do not overlap, nor do those that they come from; a To
// range may overlap From ranges at or above it, and the bytes that were there are moved in time. There is memory behind all
// of them. What else stood in the To ranges is overwritten, and the rest of the From ranges has undefined contents
// afterwards. It panics if the list breaks one of these rules.
//
// If it fails, moves[:n] are done or queued and the others untouched. It queues and returns, but with pages that are mapped
// elsewhere it waits for s, and what other streams do with the memory has to be over when s gets there. It keeps nothing of
// moves.
func (r *Region) Move(s driver.Stream, moves []Move) (n int, err error) {
	r.validate(moves)
	if r.lost != nil {
		return 0, r.lost
	}
	for i := 0; r.vm != nil && i < len(moves); i++ {
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

// copyAll moves without mapping anything.
func (r *Region) copyAll(s driver.Stream, moves []Move) (n int, err error) {
	switch {
	case r.kernel != nil:
		return r.launch(s, moves)
	case r.goKernels:
		return r.launchGo(s, moves)
	}
	return r.slideAll(s, moves)
}

// validate panics on a list that is not one of moves within the region.
func (r *Region) validate(moves []Move) {
	to, from := r.base, r.base
	end := r.base + driver.Pointer(r.size)
	for i, m := range moves {
		grains := (int64(m.To-r.base) | int64(m.From-r.base) | m.Size) % Grain
		if m.Size <= 0 || grains != 0 || m.To >= m.From || m.To < to || m.From < from ||
			m.From > end || m.Size > int64(end-m.From) {
			panic(fmt.Sprintf("region: move %d of %d, of %d bytes from %#x to %#x: outside [%#x, +%d), out of order or not in grains",
				i, len(moves), m.Size, m.From, m.To, r.base, r.size))
		}
		to, from = m.To+driver.Pointer(m.Size), m.From+driver.Pointer(m.Size)
	}
}

func failed(m Move, err error) error {
	return fmt.Errorf("region: move %d bytes from %#x to %#x: %w", m.Size, m.From, m.To, err)
}
