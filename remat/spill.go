package remat

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
	"github.com/ashlar-go/ashlar/tensor"
)

// Spill has the settings of copies to the host's memory. The zero value makes none.
type Spill struct {
	// Limit is the most page-locked host memory, in bytes, that copies may take at a time. 0 means that none are made.
	Limit int64
	// Bandwidth is the speed of the link, in bytes per second each way. 0 means that copies are timed.
	Bandwidth float64
}

// A spiller copies contents to page-locked memory and back, on a stream of its own for each direction.
//
// The copies are ordered by hand. A copy starts after the work that is queued on the runtime's stream at that time. The
// runtime's stream waits for it before the content is used, changed or dropped (see finish). So a block that is freed
// is free in the order of the runtime's stream, as always. Until then the content is pinned.
type spiller struct {
	place  *tensor.Place
	output driver.Stream
	input  driver.Stream
	driver driver.Pinned
	host   *pinned.Allocator
	timer  linkTimer
}

// A hostCopy is a copy of a content on the host.
type hostCopy struct {
	block mem.Block
	bytes []byte
	on    driver.Stream  // of the latest copy
	mark  driver.Mark    // after it
	in    bool           // it goes to the device
	busy  *tensor.Tensor // the device memory of a copy for which the runtime's stream does not wait yet, pinned; or nil
}

// newSpiller returns a spiller for copies of memory at p. The error matches driver.ErrUnsupported if the device has no
// page-locked memory.
func newSpiller(p *tensor.Place, c Spill) (*spiller, error) {
	dev := p.Device()
	host, err := pinned.New(dev, pinned.Config{MaxRoundThreshold: -1})
	if err != nil {
		return nil, fmt.Errorf("remat: spilling: %w", err)
	}
	s := &spiller{place: p, driver: dev.Pinned(), host: host}
	if s.output, err = dev.NewStream(driver.StreamOptions{}); err == nil {
		s.input, err = dev.NewStream(driver.StreamOptions{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("remat: spilling: %w", err), s.close())
	}
	if c.Bandwidth == 0 {
		s.timer.timing = dev.Timing()
	}
	return s, nil
}

func (s *spiller) close() error {
	errs := []error{s.timer.close()}
	streams := []driver.Stream{s.output, s.input}
	for _, stream := range streams {
		if stream != nil {
			errs = append(errs, stream.Sync(context.Background()))
		}
	}
	errs = append(errs, s.host.Close())
	for _, stream := range streams {
		if stream != nil {
			errs = append(errs, stream.Close())
		}
	}
	return errors.Join(errs...)
}

// out starts a copy of a content to the host.
func (s *spiller) out(c *content) error {
	if c.copy != nil {
		return nil // it is as good as a new one: contents do not change
	}
	size := c.data.Size()
	block, err := s.host.Alloc(size)
	if err != nil {
		return err
	}
	h := &hostCopy{block: block, bytes: s.host.Bytes(block)[:size]}
	err = s.start(h, c.data, s.output, func(at driver.Pointer) error {
		return s.driver.CopyOutAsync(s.output, h.bytes, at)
	})
	if err != nil {
		s.host.Free(block)
		return err
	}
	c.copy = h
	return nil
}

// ready makes the runtime's stream wait for a copy, if work that uses a content, or changes it, must come after it.
func (r *core) ready(c *content, changes bool) error {
	if r.spill == nil || c.copy == nil || !c.copy.in && !changes {
		return nil
	}
	return r.spill.finish(c)
}

// in allocates the memory of a content and starts the copy from the host.
func (s *spiller) in(c *content) error {
	if err := s.finish(c); err != nil {
		return err
	}
	h := c.copy
	data, err := s.place.Alloc(int64(len(h.bytes)))
	if err != nil {
		return err
	}
	err = s.start(h, data, s.input, func(at driver.Pointer) error {
		return s.driver.CopyInAsync(s.input, at, h.bytes)
	})
	if err != nil {
		data.Release()
		return err
	}
	c.data, h.in = data, true
	return nil
}

// start queues a copy on a stream: f makes it, from or to the address of data.
func (s *spiller) start(
	h *hostCopy, data *tensor.Storage, on driver.Stream, f func(driver.Pointer) error,
) (err error) {
	x, err := tensor.FromStorage(s.place, data, dtype.Uint8, 0, []int{int(data.Size())}, nil)
	if err != nil {
		return err
	}
	x.Pin()
	defer func() {
		if err != nil {
			x.Unpin()
			x.Release()
		}
	}()
	main := s.place.Stream()
	if err := x.Use(main, true); err != nil { // after work on other streams
		return err
	}
	now, err := main.Mark()
	if err != nil {
		return err
	}
	if err := on.WaitFor(main, now); err != nil {
		return err
	}
	if h.on != nil && h.on != on {
		if err := on.WaitFor(h.on, h.mark); err != nil {
			return err
		}
	}
	if err := s.timer.around(on, data.Size(), func() error { return f(x.Array().Ptr) }); err != nil {
		return err
	}
	mark, err := on.Mark()
	if err != nil {
		return errors.Join(err, on.Sync(context.Background()))
	}
	h.on, h.mark, h.busy = on, mark, x
	return nil
}

// finish makes the runtime's stream wait for the latest copy of a content. It does not block, unless the device fails.
func (s *spiller) finish(c *content) error {
	if c.copy == nil || c.copy.busy == nil {
		return nil
	}
	if err := s.place.Stream().WaitFor(c.copy.on, c.copy.mark); err != nil {
		if again := c.copy.on.Sync(context.Background()); again != nil {
			return errors.Join(err, again)
		}
	}
	c.copy.release()
	return nil
}

// release ends the use of device memory by a copy.
func (h *hostCopy) release() {
	if x := h.busy; x != nil {
		h.busy = nil
		x.Unpin()
		x.Release()
	}
}

// done reports whether the latest copy of a content is complete.
func (s *spiller) done(c *content) bool {
	if c.copy == nil {
		return true
	}
	reached, err := c.copy.on.Reached(c.copy.mark)
	return err == nil && reached
}

// forget gives back the copy on the host.
func (s *spiller) forget(c *content) {
	h := c.copy
	if h == nil {
		return
	}
	if err := s.host.RecordStream(h.block, h.on); err != nil { // it waited for the other
		h.on.Sync(context.Background())
		s.host.ReleaseCaptured(h.block) // nothing captures here: the device did not answer
	}
	s.finish(c)
	h.release() // if the device has failed again and again, nothing is in order any more
	s.host.Free(h.block)
	c.copy = nil
}

// CopyOut implements schedule.Copier.
func (e *executor) CopyOut(s schedule.Storage) error { return e.spill.out(e.contents[s]) }

// CopyIn implements schedule.Copier.
func (e *executor) CopyIn(s schedule.Storage) error { return e.spill.in(e.contents[s]) }

// CopyDone implements schedule.Copier.
func (e *executor) CopyDone(s schedule.Storage) bool { return e.spill.done(e.contents[s]) }

// Wait implements schedule.Copier.
func (e *executor) Wait(s schedule.Storage) error { return e.spill.finish(e.contents[s]) }

// DropHost implements schedule.Copier.
func (e *executor) DropHost(s schedule.Storage) { e.spill.forget(e.contents[s]) }
