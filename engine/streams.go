package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/callsite"
)

// BorrowStream returns another stream of the current device, for work that runs beside that of the session's own
// stream: queue such work at Place().On(stream). Memory allocated on it belongs to the session, counts for UsedMemory,
// and comes from the cache in use. Work on it is not ordered with other streams, except through tensors that they
// share. ReturnStream or Close returns the stream. It is BMEngine's get_stream.
func (s *Session) BorrowStream() (driver.Stream, error) {
	if err := s.enter("BorrowStream"); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	t := s.currentDevice()
	stream, err := t.device.streams.Get()
	if err != nil {
		return nil, fmt.Errorf("engine: device %d: BorrowStream: %w", t.device.index, err)
	}
	t.borrowed = append(t.borrowed, stream)
	t.addStream(stream)
	return stream, nil
}

// ReturnStream returns a stream of BorrowStream, on the current device. It does not wait for queued work. Tensors made
// at a place on the stream must be released first, or moved to another place, as Keep does. It panics if the stream is
// not borrowed.
func (s *Session) ReturnStream(stream driver.Stream) error {
	if err := s.enter("ReturnStream"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.currentDevice()
	i := slices.Index(t.borrowed, stream)
	if i < 0 {
		panic(fmt.Sprintf("engine: ReturnStream at %v of a stream that this session did not borrow from device %d",
			callsite.Here(), t.device.index))
	}
	t.borrowed = slices.Delete(t.borrowed, i, i+1)
	t.device.allocator.setRoute(stream, nil, nil)
	return t.device.streams.Put(stream)
}

// A closedStream is the stream of a closed session: all its calls fail.
type closedStream struct{}

func (closedStream) ID() driver.StreamID { return 0 }

func (closedStream) Copy(driver.Pointer, driver.Pointer, int64) error { return ErrClosed }

func (closedStream) CopyIn(driver.Pointer, []byte) error { return ErrClosed }

func (closedStream) CopyOut([]byte, driver.Pointer) error { return ErrClosed }

func (closedStream) Fill(driver.Pointer, byte, int64) error { return ErrClosed }

func (closedStream) Mark() (driver.Mark, error) { return driver.Mark{}, ErrClosed }

func (closedStream) Reached(driver.Mark) (bool, error) { return false, ErrClosed }

func (closedStream) WaitFor(driver.Stream, driver.Mark) error { return ErrClosed }

func (closedStream) Sync(context.Context) error { return ErrClosed }

func (closedStream) Close() error { return nil }
