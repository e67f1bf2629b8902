package main

import (
	"encoding/json"

	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/tune"
)

// tuneLine is the output of --json.
type tuneLine struct {
	Helps      bool          `json:"helps"`
	Line       *string       `json:"line"`     // to paste
	Settings   *string       `json:"settings"` // of PYTORCH_CUDA_ALLOC_CONF
	Saving     float64       `json:"saving"`   // averaged over the recordings
	Recordings []tunedLine   `json:"recordings"`
	HeldBack   []checkLine   `json:"held_back"`
	Tried      []settingLine `json:"tried"` // the best first
}

type tunedLine struct {
	Trace         string    `json:"trace"`
	Device        int       `json:"device"`
	RequestedPeak int64     `json:"requested_peak"`
	Limit         *int64    `json:"limit"`
	Recorded      needLine  `json:"recorded"`
	Best          *needLine `json:"best"` // null if nothing helps
}

type needLine struct {
	Needed       *int64   `json:"needed"`         // null if it does not complete within the budget
	Limit        *int64   `json:"smallest_limit"` // under which that much is reserved
	Fits         bool     `json:"fits"`
	OverBudget   bool     `json:"over_budget"`
	AtNeeded     *useLine `json:"at_smallest_limit"`
	WithoutLimit *useLine `json:"without_limit"`
}

// useLine is a run's use of the driver.
type useLine struct {
	ReservedPeak *int64   `json:"reserved_peak"`
	Calls        int64    `json:"driver_calls"`
	NS           int64    `json:"driver_ns"`
	LaterPercent *float64 `json:"driver_percent_after_third"`
	Stalls       int64    `json:"stalls"`
	Retries      int64    `json:"retries"`
}

type checkLine struct {
	Part     string  `json:"part"`     // recording, first_half or second_half
	Trace    *string `json:"trace"`    // null: that half of each
	Device   *int    `json:"device"`   //
	Settings *string `json:"settings"` // chosen by the rest; null: the recorded ones
	Saving   float64 `json:"saving"`
	Complete bool    `json:"complete"`
}

type settingLine struct {
	Settings   string     `json:"settings"`
	Saving     float64    `json:"saving"`
	Recordings []needLine `json:"recordings"`
}

func (t *tuning) writeJSON(p *page) error {
	line := tuneLine{Helps: t.Helps(), Saving: t.Saving(t.Best), HeldBack: []checkLine{}, Tried: []settingLine{}}
	if t.Helps() {
		paste, settings := t.line(), t.settings(t.Best)
		line.Line, line.Settings = &paste, &settings
	}
	for i, w := range t.Works {
		one := tunedLine{
			Trace: t.inputs[i].path, Device: w.Device, RequestedPeak: w.Program.LowerBound(),
			Recorded: newNeedLine(&t.Recorded.Needs[i]),
		}
		if limit := t.opts.LimitOf(w); limit > 0 {
			one.Limit = &limit
		}
		if t.Helps() {
			best := newNeedLine(&t.Best.Needs[i])
			one.Best = &best
		}
		line.Recordings = append(line.Recordings, one)
	}
	for _, c := range t.HeldBack {
		one := checkLine{Part: partNames[c.Part], Saving: c.Saving, Complete: c.Complete}
		if c.Work >= 0 {
			one.Trace, one.Device = &t.inputs[c.Work].path, &t.Works[c.Work].Device
		}
		if c.Chosen != t.Recorded {
			settings := t.settings(c.Chosen)
			one.Settings = &settings
		}
		line.HeldBack = append(line.HeldBack, one)
	}
	for _, trial := range t.Tried {
		one := settingLine{Settings: t.settings(trial), Saving: t.Saving(trial)}
		for i := range trial.Needs {
			one.Recordings = append(one.Recordings, newNeedLine(&trial.Needs[i]))
		}
		line.Tried = append(line.Tried, one)
	}
	return json.NewEncoder(p).Encode(line)
}

// partNames are the parts of recordings in the output of --json.
var partNames = map[tune.Part]string{
	tune.Whole: "recording", tune.FirstHalf: "first_half", tune.SecondHalf: "second_half",
}

func newNeedLine(n *tune.Need) needLine {
	line := needLine{Fits: n.Fits, OverBudget: n.OverBudget(), WithoutLimit: newUseLine(&n.Free)}
	if n.Bytes >= 0 {
		line.Needed, line.Limit, line.AtNeeded = &n.Bytes, &n.Limit, newUseLine(&n.Smallest)
	}
	return line
}

// newUseLine returns the use of the driver in a run, or nil if it did not complete.
func newUseLine(r *replay.Row) *useLine {
	if !r.Completed() {
		return nil
	}
	line := &useLine{
		ReservedPeak: &r.ReservedPeak, Calls: r.DriverCalls, NS: int64(r.DriverTime), Stalls: r.Stalls, Retries: r.Retries,
	}
	if r.Later != nil && r.Later.Share() >= 0 {
		percent := 100 * r.Later.Share()
		line.LaterPercent = &percent
	}
	return line
}
