package view

import (
	"fmt"
	"sort"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// Limits of the lists of an info.
const (
	maxFailures    = 1000
	maxSteps       = 10_000
	maxAnnotations = 10_000
)

// whatIfEvents is the number of events beyond which replays take too long for a page.
const whatIfEvents = 20_000_000

// An info describes a recording as JSON.
type info struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	File       string  `json:"file"`
	Device     int     `json:"device"`
	State      string  `json:"state"`
	Done       float64 `json:"done"`
	Error      string  `json:"error"`
	Generation int     `json:"generation"`
	Settling   bool    `json:"settling"` // categories and steps are not known yet

	Events        int              `json:"events"`
	Blocks        int              `json:"blocks"`
	StartTimeUS   int64            `json:"start_time_us"`
	DurationUS    float64          `json:"duration_us"`
	Times         bool             `json:"times"`
	Stacks        bool             `json:"stacks"`
	Large         bool             `json:"large"`
	RequestedPeak momentText       `json:"requested_peak"`
	ReservedPeak  momentText       `json:"reserved_peak"`
	ReservedKnown bool             `json:"reserved_known"`
	Limit         int64            `json:"limit"`
	LimitKnown    bool             `json:"limit_known"`
	Categories    []string         `json:"categories"`
	Streams       []string         `json:"streams"`
	Pools         []string         `json:"pools"`
	OOMs          []failure        `json:"ooms"`
	Steps         stepsText        `json:"steps"`
	Annotations   []annotationText `json:"annotations"`
	Moments       []momentName     `json:"moments"`
	AddressBytes  int64            `json:"address_bytes"`
	WhatIf        bool             `json:"what_if"`
	WhatIfReason  string           `json:"what_if_reason,omitempty"`
	Notes         []string         `json:"notes"`
}

// A momentText is a moment as JSON.
type momentText struct {
	Event int     `json:"event"`
	Bytes int64   `json:"bytes"`
	Time  float64 `json:"time"`
}

type momentName struct {
	Name  string `json:"name"`
	Event int    `json:"event"`
}

type stepsText struct {
	Source   string     `json:"source"`
	Inferred bool       `json:"inferred"`
	List     []stepText `json:"list"`
}

type stepText struct {
	Number  int  `json:"number"`
	First   int  `json:"first"`
	Last    int  `json:"last"`
	Partial bool `json:"partial"`
}

// An annotationText is a named section of work, with the events within it.
type annotationText struct {
	Name  string `json:"name"`
	First int    `json:"first"`
	Last  int    `json:"last"`
}

// infoOf describes a recording.
func infoOf(r *Recording) *info {
	t := r.h.Trace
	x := &info{
		Device: t.Device, Events: r.events(), Blocks: r.lives.Len(), DurationUS: float64(r.duration()),
		Stacks: r.snapshot.Stacks.Len() > 0, Large: r.events() > whatIfEvents,
		ReservedKnown: len(r.segments) > 0, OOMs: r.failures(maxFailures), Steps: r.stepsText(), Notes: []string{},
		Annotations: r.annotations(), Settling: !r.settled.Load(),
	}
	for c := range holders.Workspace + 1 {
		x.Categories = append(x.Categories, c.String())
	}
	for _, handle := range r.h.Streams {
		x.Streams = append(x.Streams, streamText(handle))
	}
	for _, id := range r.h.Pools {
		x.Pools = append(x.Pools, id.String())
	}
	if t.Len() > 0 {
		x.StartTimeUS = t.TimeUS(0)
	}
	x.Times = x.DurationUS > 0
	event, bytes := r.peak()
	x.RequestedPeak = momentText{event, bytes, float64(r.timeOf(event))}
	bytes, event = reservedIn(r.levels, -1, max(r.events()-1, -1))
	x.ReservedPeak = momentText{event, bytes, float64(r.timeOf(event))}
	_, x.AddressBytes = r.addressAxis()
	x.Moments = append(x.Moments, momentName{"peak", x.RequestedPeak.Event})
	for i, f := range x.OOMs[:min(len(x.OOMs), 20)] {
		x.Moments = append(x.Moments, momentName{fmt.Sprintf("oom:%d", i+1), f.Event})
	}
	x.Moments = append(x.Moments, momentName{"end", r.events() - 1})
	x.describeWork(r)
	return x
}

// describeWork sets the fields that say whether the recording can be replayed.
func (x *info) describeWork(r *Recording) {
	switch {
	case r.events() == 0:
		x.WhatIfReason = "the file has no history of this device, so its requests cannot be replayed"
		x.Notes = append(x.Notes, "The file has only the final state of this device: no history was recorded.")
	case x.Large:
		x.WhatIfReason = fmt.Sprintf("replays of more than %d events take too long for a page; run \"ashlar replay\"",
			whatIfEvents)
	default:
		x.WhatIf = true
	}
	if device := x.Device; device < len(r.snapshot.Limits) && r.snapshot.Limits[device] > 0 {
		x.Limit, x.LimitKnown = r.snapshot.Limits[device], true
	}
	if !x.ReservedKnown {
		x.Notes = append(x.Notes, "The recording has no segments, so the reserved memory is not known.")
	}
	if !x.Stacks {
		x.Notes = append(x.Notes, "The recording has no stacks: record with stacks=\"python\" or \"all\" to see lines.")
	}
	if before := r.lives.Unrecorded(); before > 0 && x.Events > 0 {
		x.Notes = append(x.Notes, fmt.Sprintf("The allocations of %d blocks are not in the recording: "+
			"it began late, or lost its beginning.", before))
	}
}

// work returns the requests of the recording, for replays.
func (r *Recording) work() (*replay.Work, error) {
	works, err := replay.Works(r.snapshot.Expanded())
	if err != nil {
		return nil, err
	}
	for _, w := range works {
		if w.Device == r.h.Trace.Device {
			return w, nil
		}
	}
	return nil, fmt.Errorf("view: device %d has no history", r.h.Trace.Device)
}

func (r *Recording) stepsText() stepsText {
	t := stepsText{List: []stepText{}}
	if !r.settled.Load() {
		return t
	}
	steps := r.foundSteps()
	t.Source, t.Inferred = steps.Source, steps.Inferred
	for _, s := range steps.List[:min(len(steps.List), maxSteps)] {
		t.List = append(t.List, stepText{s.Number, s.First, s.Last, s.Partial})
	}
	return t
}

// annotations returns the named sections of work, with the events within them.
func (r *Recording) annotations() []annotationText {
	list := []annotationText{}
	open := map[string][]int{} // indices of sections that have not ended, by name
	events := r.events()
	after := func(us int64) int { // the number of events before a time
		return sort.Search(events, func(i int) bool { return r.h.Trace.TimeUS(i) >= us })
	}
	for _, a := range r.snapshot.Annotations {
		if a.Device != r.h.Trace.Device || events == 0 {
			continue
		}
		n := after(a.TimeUS)
		if a.Stage == trace.StageStart && len(list) < maxAnnotations {
			open[a.Name] = append(open[a.Name], len(list))
			list = append(list, annotationText{a.Name, n, events - 1})
		} else if ends := open[a.Name]; a.Stage != trace.StageStart && len(ends) > 0 {
			list[ends[len(ends)-1]].Last = max(n-1, list[ends[len(ends)-1]].First)
			open[a.Name] = ends[:len(ends)-1]
		}
	}
	return list
}
