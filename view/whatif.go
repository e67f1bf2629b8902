package view

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/ashlar-go/ashlar/replay"
)

// Limits of a comparison.
const (
	maxSpecs    = 16
	curvePoints = 2000
)

// A whatIfRequest asks how a recording would have fared with other allocators or settings.
type whatIfRequest struct {
	Specs    []string `json:"specs"`
	Limit    int64    `json:"limit"` // of the reserved memory; 0 is that of the recording, or none
	Smallest bool     `json:"smallest"`
}

func (w *whatIfRequest) check() error {
	switch {
	case len(w.Specs) == 0 || len(w.Specs) > maxSpecs:
		return fmt.Errorf("specs: want 1 to %d", maxSpecs)
	case w.Limit < 0:
		return fmt.Errorf("limit %d: want bytes from 0", w.Limit)
	}
	return nil
}

// A whatIfText is a comparison as JSON.
type whatIfText struct {
	Limit      int64       `json:"limit"`
	LowerBound int64       `json:"lower_bound"`
	Best       int         `json:"best"`
	Rows       []whatIfRow `json:"rows"`
}

// A whatIfRow is one allocator with its settings.
type whatIfRow struct {
	Spec          string    `json:"spec"`
	Name          string    `json:"name"`
	Completed     bool      `json:"completed"`
	RequestedPeak int64     `json:"requested_peak"`
	ReservedPeak  int64     `json:"reserved_peak"`
	Waste         float64   `json:"waste"`
	SmallestLimit int64     `json:"smallest_limit"`
	OOMs          int       `json:"ooms"`
	Retries       int64     `json:"retries"`
	DriverCalls   int64     `json:"driver_calls"`
	DriverTimeUS  float64   `json:"driver_time_us"`
	Failure       string    `json:"failure"`
	Notes         []string  `json:"notes"`
	Curve         curveText `json:"curve"`
}

// A curveText is the memory of an allocator over the events of the recording.
type curveText struct {
	Event     []int   `json:"event"`
	Reserved  []int64 `json:"reserved"`
	Allocated []int64 `json:"allocated"`
}

// startWhatIf starts a comparison.
func (s *Server) startWhatIf(w http.ResponseWriter, q *http.Request) {
	r, _, ok := s.recording(w, q.PathValue("id"))
	if !ok {
		return
	}
	var ask whatIfRequest
	err := readBody(w, q, &ask)
	if err == nil {
		err = ask.check()
	}
	if err == nil && r.events() > whatIfEvents {
		err = errors.New("the recording is too large for a page: run \"ashlar replay\"")
	}
	if err != nil {
		reply(w, nil, err)
		return
	}
	work, err := r.work()
	if err == nil {
		for _, spec := range ask.Specs {
			if err == nil {
				_, err = replay.ParseSpec(spec, work.Recorded)
			}
		}
	}
	if err != nil {
		reply(w, nil, err)
		return
	}
	id, err := s.start(func(progress func(float64), stopped func() bool) (any, error) {
		return compare(work, &ask, progress, stopped)
	})
	if err != nil {
		reply(w, nil, err)
		return
	}
	reply(w, map[string]string{"job": id}, nil)
}

// compare replays the work on all allocators.
func compare(w *replay.Work, ask *whatIfRequest, progress func(float64), stopped func() bool) (*whatIfText, error) {
	if stopped() {
		return nil, errStopped
	}
	const share = 0.8 // of the comparison; the rest is for the curves
	c, err := replay.Compare(w, replay.CompareOptions{
		Specs: ask.Specs, Limit: ask.Limit, Smallest: ask.Smallest,
		Progress: func(done float64) { progress(share * done) },
	})
	if err != nil {
		return nil, err
	}
	t := &whatIfText{Limit: c.Limit, LowerBound: w.Program.LowerBound(), Best: c.Best, Rows: []whatIfRow{}}
	for i := range c.Rows {
		if stopped() {
			return nil, errStopped
		}
		row := rowText(&c.Rows[i])
		points, err := replay.Curve(w, ask.Specs[i], c.Limit, c.Capacity, curvePoints)
		if err != nil {
			return nil, err
		}
		for _, p := range points {
			row.Curve.Event = append(row.Curve.Event, p.Entry)
			row.Curve.Reserved = append(row.Curve.Reserved, p.Reserved)
			row.Curve.Allocated = append(row.Curve.Allocated, p.Allocated)
		}
		t.Rows = append(t.Rows, row)
		progress(share + (1-share)*float64(i+1)/float64(len(c.Rows)))
	}
	return t, nil
}

func rowText(r *replay.Row) whatIfRow {
	row := whatIfRow{
		Spec: r.Allocator, Name: specName(r.Allocator), Completed: r.Completed(), RequestedPeak: r.RequestedPeak,
		ReservedPeak: r.ReservedPeak, Waste: r.Waste(), SmallestLimit: r.SmallestLimit, OOMs: r.OOMs,
		Retries: r.Retries, DriverCalls: int64(r.DriverCalls), DriverTimeUS: float64(r.DriverTime.Microseconds()),
		Notes: append([]string{}, r.Notes...),
		Curve: curveText{Event: []int{}, Reserved: []int64{}, Allocated: []int64{}},
	}
	if r.Failure != nil {
		row.Failure = r.Failure.Err.Error()
	}
	return row
}

// specName is the name of a spec for people.
func specName(spec string) string {
	switch spec {
	case replay.AsRecorded:
		return "as recorded"
	case replay.AsRecorded + ":":
		return "PyTorch's defaults"
	}
	if settings, ok := strings.CutPrefix(spec, replay.AsRecorded+":"); ok {
		return "PyTorch, " + settings
	}
	return spec
}
