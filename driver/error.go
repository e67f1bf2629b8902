package driver

import (
	"errors"
	"fmt"
)

// These are the failures of a device, for errors.Is. Each is the Code of an *Error.
var (
	ErrNoMemory    = errors.New("out of device memory")
	ErrInvalid     = errors.New("invalid argument")
	ErrUnsupported = errors.New("not supported by this device")
	ErrClosed      = errors.New("already closed")
	ErrLost        = errors.New("device lost")
	ErrUnknown     = errors.New("no such driver")
	ErrNotReady    = errors.New("not reached yet")
	ErrCapturing   = errors.New("not allowed while a stream captures")
	ErrAbsent      = errors.New("no such device") // no hardware, no library for it, or no permission: Detail says which
)

// An Error is the failure of a call to a device.
type Error struct {
	Call   string // the method: "Alloc", "VirtualMemory.Map"
	Code   error  // one of the errors above, or a driver's own
	Detail string // the arguments, and any text of the device; may be empty
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("driver: %s: %v", e.Call, e.Code)
	}
	return fmt.Sprintf("driver: %s: %v (%s)", e.Call, e.Code, e.Detail)
}

// Unwrap returns the code, so that errors.Is(err, ErrNoMemory) works.
func (e *Error) Unwrap() error { return e.Code }
