package region

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
)

// A user is a stream that used the region's areas, with a mark after that use. Work of another stream on the areas waits
// for it.
type user struct {
	stream driver.Stream
	mark   driver.Mark
	err    error // why there is no mark; it is taken again when needed
}

// enter makes s wait until the areas are no longer used by other streams.
func (r *Region) enter(s driver.Stream) error {
	for i := range r.last {
		if err := r.last[i].precede(s); err != nil {
			return err
		}
	}
	return nil
}

// precede makes s wait for u.
func (u *user) precede(s driver.Stream) error {
	if u.stream == nil || u.stream == s {
		return nil
	}
	if u.err != nil {
		u.mark, u.err = u.stream.Mark()
	}
	if errors.Is(u.err, driver.ErrClosed) { // Close of a stream waits for its work
		return nil
	}
	if u.err != nil {
		return u.err
	}
	return s.WaitFor(u.stream, u.mark)
}

// leave records that work on the areas was queued on s.
func (r *Region) leave(s driver.Stream) {
	mark, err := s.Mark()
	i := 0
	if r.kernel != nil && s == r.kernel.ahead {
		i = 1
	}
	r.last[i] = user{s, mark, err}
}
