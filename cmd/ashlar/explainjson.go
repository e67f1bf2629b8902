package main

import (
	"github.com/ashlar-go/ashlar/diagnose"
)

// An explanation is the output of explain --json. Sizes are in bytes.
type explanation struct {
	Trace         string                `json:"trace"`
	Device        int                   `json:"device"`
	Verdict       []diagnose.Cause      `json:"verdict"` // the likeliest first
	Sure          []diagnose.Confidence `json:"sure"`    // of each
	Reasons       []string              `json:"reasons"` // of each
	Answer        []string              `json:"answer"`  // the first lines of the text
	LimitBytes    *int64                `json:"limit_bytes"`
	LimitBelow    *int64                `json:"limit_below"` // if limit_bytes is a lower bound: less than this
	RequestedPeak int64                 `json:"requested_peak"`
	ReservedPeak  int64                 `json:"reserved_peak"`
	Needed        map[string]*int64     `json:"needed"` // null if no limit is enough
	Moment        momentLine            `json:"moment"` // of the holders
	Holders       []holderLine          `json:"holders"`
	Failure       *failureLine          `json:"failure"`
	Layout        *layoutLine           `json:"layout"`
	Growth        *growthLine           `json:"growth"`
	Notes         []string              `json:"notes"`
}

type momentLine struct {
	Name      string `json:"name"`
	Event     int    `json:"event"`
	Requested int64  `json:"requested"`
}

type holderLine struct {
	Frame    string `json:"frame"`
	Category string `json:"category"`
	Bytes    int64  `json:"bytes"`
	Blocks   int    `json:"blocks"`
}

type failureLine struct {
	Count      int   `json:"count"` // of all failed requests; this is the first
	Entry      int   `json:"entry"`
	Size       int64 `json:"size"`
	Requested  int64 `json:"requested"` // by live blocks
	Reserved   int64 `json:"reserved"`
	DeviceFree int64 `json:"device_free"`
	Others     int64 `json:"others"` // of other processes, if the memory of the GPU is known
}

type layoutLine struct {
	Reserved    int64 `json:"reserved"`
	Requested   int64 `json:"requested"`
	Rounding    int64 `json:"rounding"`
	Free        int64 `json:"free"`
	FreePools   int64 `json:"free_private_pools"`
	FreeStreams int64 `json:"free_other_streams"`
	LargestHole int64 `json:"largest_hole"`
}

type growthLine struct {
	Steps   int               `json:"steps"`
	PerStep int64             `json:"per_step"`
	Bytes   int64             `json:"bytes"`
	Lines   []growingLineLine `json:"lines"`
}

type growingLineLine struct {
	Frame   string `json:"frame"`
	PerStep int64  `json:"per_step"`
	Bytes   int64  `json:"bytes"`
	Blocks  int    `json:"blocks"`
}

func explanationOf(x *explained) *explanation {
	r := x.report
	e := &explanation{
		Trace: x.in.path, Device: r.Device, Answer: r.Answer, RequestedPeak: r.RequestedPeak,
		ReservedPeak: r.ReservedPeak, Needed: map[string]*int64{}, Notes: r.Notes,
		Moment: momentLine{r.View.Moment.Name, r.View.Moment.Event, r.View.Bytes}, Holders: []holderLine{},
	}
	for _, v := range r.Verdicts {
		e.Verdict, e.Sure = append(e.Verdict, v.Cause), append(e.Sure, v.Confidence)
		e.Reasons = append(e.Reasons, v.Reason)
	}
	if limit, below := r.Limit(); limit > 0 {
		e.LimitBytes = &limit
		if below > limit+1 {
			e.LimitBelow = &below
		}
	}
	for i := range r.Needed {
		var bytes *int64
		if n := r.Needed[i].Bytes; n > 0 {
			bytes = &n
		}
		e.Needed[r.Needed[i].Name()] = bytes
	}
	for _, h := range r.Holders {
		e.Holders = append(e.Holders, holderLine{h.Values[0], h.Values[1], h.Bytes, h.Blocks})
	}
	if f := r.Failure; f != nil {
		e.Failure = &failureLine{r.Failures, f.Entry, f.Size, f.Requested, f.Reserved, f.Free, r.Barrier.Others}
	}
	if l := r.Layout; l != nil {
		e.Layout = &layoutLine{
			l.Reserved, l.Requested, l.Rounding, l.FreeOwn, l.FreePools, l.FreeStreams, l.LargestHole,
		}
	}
	if g := r.Growth; g != nil {
		e.Growth = &growthLine{Steps: g.Steps, PerStep: g.PerStep, Bytes: g.Bytes}
		for _, l := range g.Lines {
			e.Growth.Lines = append(e.Growth.Lines, growingLineLine{l.Label, l.PerStep, l.Bytes, l.Blocks})
		}
	}
	return e
}
