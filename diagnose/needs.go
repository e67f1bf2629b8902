package diagnose

import (
	"strings"

	"github.com/ashlar-go/ashlar/replay"
)

// The search for the memory that settings need ends at 1 MiB or, in a long recording, at a part of the lower bound,
// which takes half as many replays.
const (
	longRecording    = 200_000 // ops
	coarseResolution = 0.01
)

// findNeeds sets Report.Needed: the recorded settings, those without the harmful one, and expandable segments.
func (x *explainer) findNeeds() error {
	specs := []string{replay.AsRecorded}
	if x.harmful.spec != "" {
		specs = append(specs, x.harmful.spec)
	}
	if !x.w.Recorded.ExpandableSegments && x.harmful.spec != expandable {
		specs = append(specs, expandable)
	}
	resolution := int64(0)
	if len(x.w.Program.Ops) > longRecording {
		resolution = int64(coarseResolution * float64(x.w.Program.LowerBound()))
	}
	searches := make([]replay.LimitSearch, len(specs))
	for i, spec := range specs {
		searches[i] = replay.LimitSearch{Work: x.trials.work, Spec: spec}
	}
	found, err := replay.SearchLimits(searches, replay.LimitOptions{
		Capacity: x.trials.capacity, Resolution: resolution,
		Progress: func(done float64) { x.progress(0.5 + done/2) },
	})
	if err != nil {
		return err
	}
	for i, spec := range specs {
		x.r.Needed = append(x.r.Needed, Need{spec, found[i].Limit})
	}
	return nil
}

// Name returns the setting as a user writes it: "as recorded", "PyTorch's defaults" or the settings.
func (n *Need) Name() string {
	settings, caching := strings.CutPrefix(n.Setting, "caching:")
	switch {
	case n.Setting == replay.AsRecorded:
		return "as recorded"
	case caching && settings == "":
		return "PyTorch's defaults"
	}
	return settings
}

// best returns the setting that needs least, other than the recorded ones, if it needs notably less than they do or
// they never complete.
func (r *Report) best() *Need {
	if len(r.Needed) == 0 {
		return nil
	}
	recorded := r.Needed[0].Bytes
	var best *Need
	for i := range r.Needed[1:] {
		n := &r.Needed[i+1]
		if n.Bytes <= 0 || recorded > 0 && float64(n.Bytes) > 0.98*float64(recorded) {
			continue
		}
		if best == nil || n.Bytes < best.Bytes {
			best = n
		}
	}
	return best
}

// need returns the need of a spec, or nil.
func (r *Report) need(spec string) *Need {
	for i := range r.Needed {
		if r.Needed[i].Setting == spec && r.Needed[i].Bytes > 0 {
			return &r.Needed[i]
		}
	}
	return nil
}
