package trace

import "fmt"

// A Prelude describes the first ops of a Program if its recording started late or its ring buffer overwrote the start:
// an allocation for each block that was allocated before the first entry. Blocks whose frees were recorded come first,
// in the order of the frees, then blocks that were live at the end.
type Prelude struct {
	Blocks int
	Bytes  int64 // requested
}

// Anomalies are entries that contradict earlier entries. They are reported and skipped.
type Anomalies struct {
	Count int
	First []Anomaly // the first few
}

// maxAnomalies is the maximum number of anomalies that are described. More of them usually have the same cause.
const maxAnomalies = 8

// An Anomaly is an entry that contradicts earlier entries.
type Anomaly struct {
	Entry int // index into Trace.Events; len(Trace.Events) for a contradiction at the end of the recording
	What  string
}

// String names the entry and what is wrong with it.
func (a Anomaly) String() string { return fmt.Sprintf("entry %d: %s", a.Entry, a.What) }

func (a *Anomalies) add(entry int, format string, args ...any) {
	if a.Count++; a.Count <= maxAnomalies {
		a.First = append(a.First, Anomaly{Entry: entry, What: fmt.Sprintf(format, args...)})
	}
}
