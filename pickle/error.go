package pickle

import (
	"errors"
	"fmt"
)

// The codes of an *Error, for errors.Is. The Code may also be an error of the underlying reader.
var (
	ErrTruncated = errors.New("pickle: the input ends too early")
	ErrCorrupt   = errors.New("pickle: not a valid pickle")
	ErrRefused   = errors.New("pickle: not plain data")
	ErrRange     = errors.New("pickle: an integer does not fit into 64 bits")
	ErrLimit     = errors.New("pickle: over a limit")
)

// An Error is the reason why a pickle could not be read, with its offset.
type Error struct {
	Offset int64  // bytes from the start of the pickle to the opcode
	Opcode Opcode // the opcode at Offset; 0 if there is none, at the end of the input or before the first opcode
	Reason string // a phrase that describes the error
	Code   error  // ErrTruncated, ErrCorrupt, ErrRefused, ErrRange, ErrLimit, or what the reader returned
}

func (e *Error) Error() string {
	if e.Opcode == 0 {
		return fmt.Sprintf("pickle: offset %d: %s", e.Offset, e.Reason)
	}
	return fmt.Sprintf("pickle: offset %d: %v %s", e.Offset, e.Opcode, e.Reason)
}

// Unwrap returns the code, so that errors.Is(err, ErrRefused) works.
func (e *Error) Unwrap() error { return e.Code }
