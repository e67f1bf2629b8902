package timeline_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// A traced is an event as viewers see it.
type traced struct {
	Phase string         `json:"ph"`
	Name  *string        `json:"name"`
	Cat   string         `json:"cat"`
	ID    int            `json:"id"`
	PID   *int           `json:"pid"`
	TID   *int           `json:"tid"`
	Time  *float64       `json:"ts"`
	Dur   *float64       `json:"dur"`
	Scope string         `json:"s"`
	Args  map[string]any `json:"args"`
}

// checkTrace holds a trace against the rules of the format, and those of our own: complete events of a thread nest, in
// the order of the file, and everything that is asynchronous ends.
func checkTrace(t *testing.T, text string) []traced {
	t.Helper()
	var file struct {
		Unit   string         `json:"displayTimeUnit"`
		Events []traced       `json:"traceEvents"`
		Other  map[string]any `json:"otherData"`
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if dec.More() || file.Unit != "ms" || file.Events == nil {
		t.Errorf("unit %q, %d events, more: %t", file.Unit, len(file.Events), dec.More())
	}
	type thread struct{ pid, tid int }
	within := map[thread][]traced{}
	begun := map[int]float64{}
	named := map[thread]bool{}
	for i, e := range file.Events {
		bad := func(why string) {
			t.Helper()
			t.Errorf("event %d, %s %q: %s", i, e.Phase, *e.Name, why)
		}
		if e.Name == nil || e.PID == nil || e.TID == nil {
			t.Fatalf("event %d lacks name, pid or tid: %+v", i, e)
		}
		if (e.Time == nil) != (e.Phase == "M") || (e.Dur == nil) != (e.Phase != "X") {
			bad("ts and dur")
			continue
		}
		if e.Time != nil && *e.Time < 0 || e.Dur != nil && *e.Dur < 0 {
			bad("negative time")
		}
		th := thread{*e.PID, *e.TID}
		switch e.Phase {
		case "M":
			if *e.Name == "thread_name" {
				named[th] = true
			}
		case "X":
			open := within[th]
			for len(open) > 0 && *open[len(open)-1].Time+*open[len(open)-1].Dur <= *e.Time+1e-6 && *e.Dur > 0 {
				open = open[:len(open)-1]
			}
			if n := len(open); n > 0 {
				in := open[n-1]
				if *e.Time < *in.Time-1e-6 {
					bad("begins before " + *in.Name)
				}
				if *e.Dur > 0 && *e.Time+*e.Dur > *in.Time+*in.Dur+1e-6 {
					bad("leaves " + *in.Name)
				}
			}
			if *e.Dur > 0 {
				open = append(open, e)
			}
			within[th] = open
		case "b":
			begun[e.ID] = *e.Time
			if e.Cat == "" || e.ID == 0 {
				bad("asynchronous without category and number")
			}
		case "e":
			if at, ok := begun[e.ID]; !ok || *e.Time < at {
				bad("ends what did not begin")
			}
			delete(begun, e.ID)
		case "i":
			if e.Scope != "t" {
				bad("scope " + e.Scope)
			}
		case "C":
			if _, ok := e.Args["value"].(float64); !ok {
				bad("no value")
			}
		case "B":
		default:
			bad("unknown phase")
		}
		if strings.Contains("XBbi", e.Phase) && !named[th] {
			bad("its thread has no name")
		}
	}
	if len(begun) > 0 {
		t.Errorf("never ended: %v", begun)
	}
	return file.Events
}
