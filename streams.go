package ashlar

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

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

// A sweep asks for memory that there is no room for, once: a place then takes back what was dropped, which it does for no other
// reason, and asks again, which is answered by an error that ends the matter.
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
