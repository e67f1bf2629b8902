package trace

import "fmt"

// A Prelude is the beginning of a Program whose recording starts late, or whose ring buffer overwrote its start: one
// allocation for each block that was allocated before the first entry. They are the program's first ops: first the blocks
// whose free was recorded, in the order of those frees, then those that outlived the recording.
type Prelude struct {
	Blocks int
	Bytes  int64 // requested
}

// Anomalies are entries that no allocator could have written in that order: a recording is evidence, so they are
// reported and the rest is used.
type Anomalies struct {
	Count int
	First []Anomaly // the first few
}

// maxAnomalies is how many are described: a recording with more is broken in one way.
const maxAnomalies = 8

// An Anomaly is an entry that contradicts those before it.
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
