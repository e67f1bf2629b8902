package driver

// Graphs captures work that is queued on streams into graphs that can be launched many times, instead of doing it. It
// is safe for concurrent use, but only one caller may capture on a stream.
//
// While a stream captures, the work queued on it is recorded. WaitFor with a mark taken in a capture draws the waiting
// stream into it; before End every stream that was drawn in must have been waited for by the one that began. Calls that
// would have to wait for captured work (Sync, CopyIn and CopyOut of ordinary memory) fail with ErrCapturing. Marks
// taken during a capture are not reached while it lasts, and Reached then makes no call of the device. Afterwards they
// are reached, since capturing did no work.
type Graphs interface {
	// Begin begins a capture on s. The default stream cannot capture: the error matches ErrCapturing and says so.
	Begin(s Stream) error

	// End ends the capture that Begin began on s and returns the captured graph. If the capture failed, the error says
	// so and s is an ordinary stream again.
	End(s Stream) (Graph, error)

	// Capturing reports whether s is part of a capture. It does not wait.
	Capturing(s Stream) (bool, error)

	// Ordered reports whether the work that m covers is done, in each launch of the graph that is being captured,
	// before any work begins that s captures from now on. So memory that only this work used may be used again on s.
	//
	// m must have been taken on other, in the capture that s is part of. For any other mark, and after the end of the
	// capture, Ordered returns false. m also covers the work that was queued on other before the capture, which is part
	// of no launch: that work must be done when Ordered is called. A driver that does not know returns false. Ordered
	// does not wait, and asks the device at most whether that earlier work is done.
	//
	// It panics if a stream is nil or of another device, or m is not a mark of other. The error matches ErrClosed if s
	// or the device is closed.
	Ordered(other Stream, m Mark, s Stream) (bool, error)
}

// A Graph is captured work, ready to be launched. It is safe for concurrent use.
type Graph interface {
	// Launch queues the whole graph on s. Launches of one graph do not overlap.
	Launch(s Stream) error

	// Nodes returns the number of pieces of work in the graph.
	Nodes() int

	// Close destroys the graph. A launch that is under way finishes first.
	Close() error
}
