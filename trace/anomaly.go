package trace

import "fmt"

// A Prelude is the beginning of a Program whose recording starts late or whose ring buffer overwrote the start: an
// allocation for each block that was allocated before the first entry. These are the first ops of the program: first
// the blocks whose frees were recorded, in the order of the frees, then those that were live at the end.
type Prelude struct {
	Blocks int
	Bytes  int64 // requested
}

// Anomalies are entries that no allocator could have written in that order. They are reported and skipped.
type Anomalies struct {
	Count int
	First []Anomaly // the first few
}

// maxAnomalies is how many are described: a recording with more is broken in one way.
const maxAnomalies = 8

// An Anomaly is an entry that contradicts earlier entries.
type Anomaly struct {
	Entry int // index into Trace.Events; len(Trace.Events) for what the end of the recording contradicts
	What  string
}

// String names the entry and what is wrong with it.
func (a Anomaly) String() string { return fmt.Sprintf("entry %d: %s", a.Entry, a.What) }

func (a *Anomalies) add(entry int, format string, args ...any) {
	if a.Count++; a.Count <= maxAnomalies {
		a.First = append(a.First, Anomaly{Entry: entry, What: fmt.Sprintf(format, args...)})
	}
}
