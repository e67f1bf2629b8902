package driver

import "time"

// Timing reads the device's own clock at points on streams. It is safe for concurrent use.
type Timing interface {
	// Stamp queues the reading of the clock on s, after all work queued so far, and returns the stamp, which the caller
	// owns until Discard.
	Stamp(s Stream) (Stamp, error)

	// Elapsed returns the device's time from one stamp to another, negative if to was taken first. It does not wait:
	// the error matches ErrNotReady unless the marks of both are reached. Real clocks resolve about half a microsecond.
	Elapsed(from, to Stamp) (time.Duration, error)

	// Discard releases the stamp. A stamp that is not reached yet may be discarded.
	Discard(Stamp) error
}

// A Stamp is a point on a stream at which the device's clock is read: an owned handle from Stamp until Discard.
type Stamp struct {
	Mark Mark // the point: Stream.Reached and WaitFor take it
	ID   uint64
}
