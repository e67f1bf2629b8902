package drivercost

import (
	"math"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver/sim"
)

// Model makes a cost model of the figures. It takes the costs of calls that were not measured from base, and returns
// their names in kept, in the order of sim.Call. About becomes the model's About.
//
// Costs by size are the medians, adjusted to ascend. Copies and fills have a fixed cost and a cost per byte, and
// further pages of one mapping call have a cost per page; these fit the medians best (fit.go). Register and Unregister
// need memory outside of Go's heap and are not measured: their costs are those of AllocHost and FreeHost.
func (r *Report) Model(base *sim.CostModel, about string) (m *sim.CostModel, kept []string) {
	m = &sim.CostModel{About: about, MapNext: base.MapNext, UnmapNext: base.UnmapNext}
	for c := range sim.NumCalls {
		source := c
		switch c {
		case sim.CallRegister:
			source = sim.CallAllocHost
		case sim.CallUnregister:
			source = sim.CallFreeHost
		}
		if m.Calls[c] = r.curve(source); m.Calls[c] == nil {
			m.Calls[c] = slices.Clone(base.Calls[c])
			kept = append(kept, c.String())
		}
	}
	for c, next := range map[sim.Call]*time.Duration{sim.CallMap: &m.MapNext, sim.CallUnmap: &m.UnmapNext} {
		if cost, ok := r.perFurtherPage(c); ok {
			*next = cost
		}
	}
	return m, kept
}

// figuresOf returns the figures of a call that the model uses.
func (r *Report) figuresOf(c sim.Call) (figures []Figure) {
	for _, f := range r.Figures {
		if f.Call == c.String() && f.Note == "" {
			figures = append(figures, f)
		}
	}
	return figures
}

// curve returns the cost of a call, or nil if it was not measured.
func (r *Report) curve(c sim.Call) sim.Curve {
	switch c {
	case sim.CallCopy, sim.CallFill, sim.CallCopyIn, sim.CallCopyOut, sim.CallCopyInAsync, sim.CallCopyOutAsync:
		return r.transfer(c)
	}
	var curve sim.Curve
	var costs []float64
	for _, f := range r.figuresOf(c) {
		size := f.Size
		switch c {
		case sim.CallEndCapture, sim.CallLaunchGraph, sim.CallCloseGraph:
			size = int64(f.N)
		case sim.CallMap, sim.CallUnmap:
			if f.N > 1 {
				continue
			}
		}
		curve = append(curve, sim.Point{Size: size})
		costs = append(costs, float64(f.Median))
	}
	ascending(costs)
	for i := range curve {
		curve[i].Cost = time.Duration(costs[i])
	}
	return curve
}

// transfer returns the cost of a call that moves bytes: the time until the smallest call returns, and the cost per byte
// of the larger ones.
func (r *Report) transfer(c sim.Call) sim.Curve {
	figures := r.figuresOf(c)
	if len(figures) == 0 {
		return nil
	}
	first, larger := figures[0], figures[1:]
	if len(larger) < 2 {
		larger = figures
	}
	_, perByte := fitLine(samples(larger, func(f *Figure) float64 { return float64(f.Size) }))
	fixed := max(0, float64(first.Median)-perByte*float64(first.Size))
	return sim.Curve{{Size: 0, Cost: round(fixed)}, {Size: gib, Cost: round(fixed + perByte*gib)}}
}

// perFurtherPage returns the cost of each further page in one call, and whether several were measured.
func (r *Report) perFurtherPage(c sim.Call) (time.Duration, bool) {
	figures := r.figuresOf(c)
	if len(figures) == 0 {
		return 0, false
	}
	granule := figures[0].Size
	figures = slices.DeleteFunc(figures, func(f Figure) bool { return f.Size != granule })
	_, perPage := fitLine(samples(figures, func(f *Figure) float64 { return float64(f.N - 1) }))
	return round(perPage), len(figures) > 1
}

func samples(figures []Figure, size func(*Figure) float64) (all []sample) {
	for i := range figures {
		all = append(all, sample{size(&figures[i]), float64(figures[i].Median)})
	}
	return all
}

func round(ns float64) time.Duration { return time.Duration(math.Round(ns)) }
