package holders

// Repetitions returns the steps that the requests show, also if there are annotations.
func Repetitions(h *History) Steps { return h.repetitions() }
