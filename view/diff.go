package view

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/ashlar-go/ashlar/holders"
)

// A diffText is the difference of two recordings as JSON.
type diffText struct {
	A       diffSide     `json:"a"`
	B       diffSide     `json:"b"`
	By      []string     `json:"by"`
	Changes []changeText `json:"changes"`
	Total   int          `json:"total"`
	Steps   []stepChange `json:"steps"`
}

// A diffSide is one of two moments.
type diffSide struct {
	Event int    `json:"event"`
	Bytes int64  `json:"bytes"`
	Name  string `json:"name"`
}

// A changeText is a group of blocks that both moments have, or one of them.
type changeText struct {
	Values       []string `json:"values"`
	Before       int64    `json:"before"`
	After        int64    `json:"after"`
	BlocksBefore int      `json:"blocks_before"`
	BlocksAfter  int      `json:"blocks_after"`
}

// A stepChange is a step that both recordings have.
type stepChange struct {
	Number      int   `json:"number"`
	PeakBefore  int64 `json:"peak_before"`
	PeakAfter   int64 `json:"peak_after"`
	FinalBefore int64 `json:"final_before"`
	FinalAfter  int64 `json:"final_after"`
}

// maxChanges is the number of changes in an answer.
const maxChanges = 5000

func (s *Server) serveDiff(w http.ResponseWriter, q *http.Request) {
	query := q.URL.Query()
	a, _, ok := s.recording(w, query.Get("a"))
	if !ok {
		return
	}
	b, _, ok := s.recording(w, query.Get("b"))
	if !ok {
		return
	}
	result, err := diff(a, b, query)
	reply(w, result, err)
}

// diff compares the holders of two recordings.
func diff(a, b *Recording, q url.Values) (*diffText, error) {
	keys, err := keysOf(q.Get("by"))
	if err != nil {
		return nil, err
	}
	if slices.Contains(keys, holders.ByCategory) {
		a.settle()
		b.settle()
	}
	before, err := momentOf(a, q, "ea")
	if err != nil {
		return nil, err
	}
	after, err := momentOf(b, q, "eb")
	if err != nil {
		return nil, err
	}
	t := &diffText{
		A: diffSide{before.Event, before.Bytes, before.Name}, B: diffSide{after.Event, after.Bytes, after.Name},
		Changes: []changeText{}, Steps: []stepChange{},
	}
	for _, k := range keys {
		t.By = append(t.By, k.String())
	}
	changes := holders.Diff(a.h.At(before), b.h.At(after), keys...)
	t.Total = len(changes)
	for _, c := range changes[:min(len(changes), maxChanges)] {
		t.Changes = append(t.Changes, changeText{c.Values, c.Before, c.After, c.BlocksBefore, c.BlocksAfter})
	}
	for _, c := range holders.DiffSteps(a.h, b.h) {
		t.Steps = append(t.Steps, stepChange{c.Number, c.PeakBefore, c.PeakAfter, c.FinalBefore, c.FinalAfter})
	}
	return t, nil
}

// momentOf returns the moment of one recording: an event, or the moment with the name in the parameter at.
func momentOf(r *Recording, q url.Values, parameter string) (holders.Moment, error) {
	if q.Get(parameter) == "" {
		name := q.Get("at")
		if name == "" {
			name = "peak"
		}
		return r.h.Moment(name)
	}
	n, err := number(q, parameter, -1)
	if err != nil {
		return holders.Moment{}, err
	}
	return r.h.Moment(fmt.Sprintf("event:%d", n))
}
