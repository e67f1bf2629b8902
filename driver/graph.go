package driver

// Graphs captures work that is queued on streams, instead of doing it, into graphs that can be launched many times.
// Safe for concurrent use, though one stream captures for one caller.
//
// While a stream captures, the work queued on it is recorded. WaitFor with a mark taken in a capture draws the waiting
// stream into it; before End every stream that was drawn in must have been waited for by the one that began. What would
// have to wait for captured work (Sync, CopyIn and CopyOut of ordinary memory) fails with ErrCapturing. Marks taken
// during a capture are not reached while it lasts, and asking costs no call of the device; afterwards they are, since
// capturing did no work.
type Graphs interface {
	// Begin makes s capture. The default stream cannot: the error matches ErrCapturing and says so.
	Begin(s Stream) error

	// End ends the capture that Begin began on s and returns what was captured. If the capture failed, the error says so
	// and s is an ordinary stream again.
	End(s Stream) (Graph, error)

	// Capturing reports whether s is part of a capture. It waits for nothing.
	Capturing(s Stream) (bool, error)

	// Ordered reports whether the work that m covers is done, in each launch of the graph that is being captured, before
	// any work begins that s captures from now on. So memory that only this work used may be used again on s.
	//
	// m was taken on other, in the capture that s is part of: of any other mark, and once the capture has ended, the answer
	// is no. m covers what was queued on other before the capture too, which is no part of any launch: it has to be done
	// when Ordered is called. A driver that cannot tell says no. It waits for nothing, and asks the device at most whether
	// that earlier work is done.
	//
	// It panics if a stream is nil or of another device, or m is not a mark of other. The error matches ErrClosed if s or
	// the device is closed.
	Ordered(other Stream, m Mark, s Stream) (bool, error)
}

// A Graph is captured work, ready to be launched. Safe for concurrent use.
type Graph interface {
	// Launch queues the whole graph on s. Launches of one graph do not overlap.
	Launch(s Stream) error

	// Nodes is the number of pieces of work in it.
	Nodes() int

	// Close gives the graph up. A launch that is under way finishes first.
	Close() error
}
