package main

import (
	"fmt"
	"slices"
)

// A target is what Ashlar wants to reach, and what it reached.
type target struct {
	what, want string
	measured   string // figures, or why there are none
	verdict    verdict
}

type verdict string

const (
	met         verdict = "met"
	missed      verdict = "**missed**"
	notMeasured verdict = "not measured"
)

// targets holds the results against what Ashlar is to reach.
func (r *results) targets() []target {
	if r.Settings.What == operations {
		return r.operationTargets()
	}
	var ts []target
	for _, size := range warmSizes {
		for _, column := range []string{colAshlar, colMagazines} {
			row := label(size)
			what := fmt.Sprintf("warm pair of %s, time of %s", row, column)
			ts = append(ts, r.ratio(what, place{"warm", row, column}, place{"warm", row, colPyTorch}, atMost(0.2)))
		}
	}
	live := fmt.Sprintf("%d live blocks", r.Settings.Live)
	ts = append(ts,
		r.ratio(live+", time", place{"replace", colAshlar, colTime}, place{"replace", colPyTorch, colTime},
			atMost(0.25)),
		r.equal(live+", requested peak", colRequested),
		r.equal(live+", reserved peak", colReserved))
	if r.Settings.Live == 4096 {
		ts = append(ts, r.most(live+", time of "+colPaged, place{"replace", colPaged, colTime}, 80, "ns"))
	}
	for _, c := range []struct {
		part, streams string
		want          float64
	}{{"threads-own", "a stream each", 30}, {"threads-one", "one stream", 10}} {
		for _, column := range []string{colAshlar, colMagazines} {
			what := fmt.Sprintf("16 threads, %s, rate of %s", c.streams, column)
			ts = append(ts, r.ratio(what, place{c.part, "16", column}, place{c.part, "16", colPyTorch},
				atLeast(c.want)))
		}
	}
	for _, c := range []struct{ part, what string }{
		{"in", "`CopyIn` of 1 GiB from"},
		{"out", "`CopyOut` of 1 GiB to"},
	} {
		ts = append(ts, r.rate(c.what+" an ordinary slice", place{c.part, label(1 << 30), colCopy}, 40))
	}
	return append(ts, r.deviceCopy())
}

// deviceCopy is the target of copies within the device.
func (r *results) deviceCopy() target {
	row := "copy of " + label(r.Settings.Largest)
	return r.ratio(row+" within the device, rate", place{"device", row, colAshlar}, place{"device", row, colCUDA},
		atLeast(0.95))
}

// operationTargets are the targets of a run that measures operations.
func (r *results) operationTargets() []target {
	ts := []target{r.deviceCopy()}
	for _, o := range r.Settings.operations().rows {
		ts = append(ts, r.nearest(o, place{"operations", o, colAshlar}, place{"operations", o, colPyTorch},
			place{"device", "copy of " + label(r.Settings.Largest), colCUDA}))
	}
	product := r.Settings.products().rows[0]
	return append(ts,
		r.ratio("product of "+product+", rate", place{"products", product, colAshlar},
			place{"products", product, colPyTorch}, atLeast(0.97)),
		r.ratio("what an add of one element costs, launch included", place{"overhead", rowOfOne, colAshlar},
			place{"overhead", rowOfOne, colPyTorch}, atMost(0.5)))
}

// nearest wants nine tenths of PyTorch's rate, or of that of a copy within the device where that is lower.
func (r *results) nearest(what string, ours, theirs, copying place) target {
	x, y := r.at(theirs), r.at(copying)
	if x == nil || (y != nil && y.median() < x.median()) {
		return r.ratio(what+", rate", ours, copying, atLeast(0.9))
	}
	return r.ratio(what+", rate", ours, theirs, atLeast(0.9))
}

// A bound is what a ratio is to be.
type bound struct {
	limit float64
	upper bool
}

func atMost(x float64) bound  { return bound{x, true} }
func atLeast(x float64) bound { return bound{x, false} }

func (b bound) judge(x float64) verdict {
	if (b.upper && x <= b.limit) || (!b.upper && x >= b.limit) {
		return met
	}
	return missed
}

// ratio compares the medians of a cell and the one that it is held against.
func (r *results) ratio(what string, ours, theirs place, b bound) target {
	t := target{what: what, want: fmt.Sprintf("at least %g times %s's", b.limit, theirs.column), verdict: notMeasured}
	if b.upper {
		t.want = fmt.Sprintf("at most %g times PyTorch's", b.limit)
	}
	x, y := r.at(ours), r.at(theirs)
	if x == nil || y == nil {
		return t
	}
	q := x.median() / y.median()
	t.measured = fmt.Sprintf("%s times: %s against %s", figure(q), figure(x.median()), figure(y.median()))
	t.verdict = b.judge(q)
	return t
}

func (r *results) rate(what string, at place, gigabytes float64) target {
	t := target{what: what, want: fmt.Sprintf("at least %g GB/s", gigabytes), verdict: notMeasured}
	if c := r.at(at); c != nil {
		t.measured = figure(c.median()) + " GB/s"
		t.verdict = atLeast(gigabytes).judge(c.median())
	}
	return t
}

// most wants a figure to be so much at most.
func (r *results) most(what string, at place, limit float64, unit string) target {
	t := target{what: what, want: fmt.Sprintf("at most %g %s", limit, unit), verdict: notMeasured}
	if c := r.at(at); c != nil {
		t.measured = figure(c.median()) + " " + unit
		t.verdict = atMost(limit).judge(c.median())
	}
	return t
}

// equal wants a quantity of the replacements to be the same number in every repetition on both sides.
func (r *results) equal(what, column string) target {
	t := target{what: what, want: "equal to PyTorch's", verdict: notMeasured}
	ours, theirs := r.at(place{"replace", colAshlar, column}), r.at(place{"replace", colPyTorch, column})
	if ours == nil || theirs == nil {
		return t
	}
	all := slices.Concat(ours.Samples, theirs.Samples)
	if slices.Min(all) == slices.Max(all) {
		t.measured, t.verdict = figure(all[0])+" bytes, each time", met
		return t
	}
	t.measured = fmt.Sprintf("%s against %s", ours.text(), theirs.text())
	t.verdict = missed
	return t
}
