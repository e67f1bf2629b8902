package holders

// Repetitions returns the steps that the requests show, also if there are annotations.
func Repetitions(h *History) Steps { return h.repetitions() }

// SumAnew sums up the active bytes in windows of a number of events.
func (h *History) SumAnew(window int) {
	h.activeSums = activeSums{}
	h.sum(h.Lifetimes, h.Trace.Len(), window)
}
