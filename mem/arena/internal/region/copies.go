package region

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// farShift is the shift from which a run is copied directly, in pieces as long as the shift. Shorter shifts use the
// bounce area, which reads and writes every byte twice.
const farShift = 32 << 20

// slideAll makes the moves by copies of the device.
func (r *Region) slideAll(s driver.Stream, moves []Move) (n int, err error) {
	for i, m := range moves {
		if err := r.slide(s, m); err != nil {
			return i, failed(m, err)
		}
	}
	return len(moves), nil
}

// slide moves one run. If a piece fails, the pieces before it are moved back in reverse order, which restores the bytes
// that they overwrote. If the device has no room for a bounce area, which is likely when compaction is needed most, Go
// kernels move the run, if the device has them, or otherwise copies in pieces as long as the shift. This is slower but
// needs no memory.
func (r *Region) slide(s driver.Stream, m Move) error {
	shift := int64(m.From - m.To)
	if shift >= m.Size {
		return s.Copy(m.To, m.From, m.Size)
	}
	step, piece := shift, s.Copy
	if shift < min(farShift, r.bounceSize) {
		switch err := r.prepareBounce(s); {
		case err == nil:
			defer r.leave(s)
			step, piece = r.bounceSize, r.bouncing(s)
		case !errors.Is(err, driver.ErrNoMemory):
			return err
		case r.goKernels:
			return r.dev.Kernels().Launch(s, goKernel([]Move{m}))
		}
	}
	for done := int64(0); done < m.Size; done += step {
		at := driver.Pointer(done)
		err := piece(m.To+at, m.From+at, min(step, m.Size-done))
		for err != nil && done > 0 {
			done -= step
			at := driver.Pointer(done)
			if undone := piece(m.From+at, m.To+at, step); undone != nil {
				return r.lose(errors.Join(err, undone))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bouncing returns a function that copies through the bounce area.
func (r *Region) bouncing(s driver.Stream) func(dst, src driver.Pointer, n int64) error {
	return func(dst, src driver.Pointer, n int64) error {
		if err := s.Copy(r.bounce, src, n); err != nil {
			return err
		}
		return s.Copy(dst, r.bounce, n)
	}
}

// prepareBounce allocates the bounce area if necessary, and makes s its user.
func (r *Region) prepareBounce(s driver.Stream) error {
	if r.bounce == 0 {
		p, err := r.dev.Alloc(r.bounceSize)
		if err != nil {
			return fmt.Errorf("the bounce area: %w", err)
		}
		r.bounce = p
	}
	return r.enter(s)
}

// lose records that the bytes of a move are lost.
func (r *Region) lose(err error) error {
	r.lost = fmt.Errorf("region: a move failed and could not be undone: %w: %w", mem.ErrContentsLost, err)
	return r.lost
}
