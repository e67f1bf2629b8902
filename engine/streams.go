package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// BorrowStream lends the session another stream of its current device, for work beside that of its own:
// Place().On(stream) is where such work is queued. What is allocated on it is the session's, counts for UsedMemory, and
// comes from the cache in use. Work on it is in no order with that of other streams, but for what the tensors that they
// share see to. ReturnStream gives it back, or else Close. It is BMEngine's get_stream.
func (s *Session) BorrowStream() (driver.Stream, error) {
	if err := s.enter("BorrowStream"); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	t := s.seat()
	stream, err := t.device.streams.Get()
	if err != nil {
		return nil, fmt.Errorf("engine: device %d: BorrowStream: %w", t.device.index, err)
	}
	t.lent = append(t.lent, stream)
	t.take(stream)
	return stream, nil
}

// ReturnStream gives back a stream that BorrowStream lent, on the current device, with the work that is queued on it.
// Tensors that were made at a place on it must be released, or moved to another place (Keep does). A stream that is not
// lent panics.
func (s *Session) ReturnStream(stream driver.Stream) error {
	if err := s.enter("ReturnStream"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.seat()
	i := slices.Index(t.lent, stream)
	if i < 0 {
		panic(fmt.Sprintf("engine: ReturnStream at %v of a stream that device %d has not lent to this session",
			here(), t.device.index))
	}
	t.lent = slices.Delete(t.lent, i, i+1)
	t.device.lanes.lead(stream, nil, nil)
	return t.device.streams.Put(stream)
}

// An endedStream is the stream of a session that is closed: everything fails.
type endedStream struct{}

func (endedStream) ID() driver.StreamID { return 0 }

func (endedStream) Copy(driver.Pointer, driver.Pointer, int64) error { return ErrClosed }

func (endedStream) CopyIn(driver.Pointer, []byte) error { return ErrClosed }

func (endedStream) CopyOut([]byte, driver.Pointer) error { return ErrClosed }

func (endedStream) Fill(driver.Pointer, byte, int64) error { return ErrClosed }

func (endedStream) Mark() (driver.Mark, error) { return driver.Mark{}, ErrClosed }

func (endedStream) Reached(driver.Mark) (bool, error) { return false, ErrClosed }

func (endedStream) WaitFor(driver.Stream, driver.Mark) error { return ErrClosed }

func (endedStream) Sync(context.Context) error { return ErrClosed }

func (endedStream) Close() error { return nil }

// A sweep asks for memory that there is no room for, once: a place then takes back what was dropped, which it does for
// no other reason, and asks again, which is answered by an error that ends the matter.
type sweep struct {
	driver.Stream
	asked bool
}

func (s *sweep) answer() error {
	if s.asked {
		return ErrClosed
	}
	s.asked = true
	return mem.ErrNoMemory
}
