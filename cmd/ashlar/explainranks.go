package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// outlierPart is the part of the median of the ranks' peaks by which the peak of an outlier differs at least.
const outlierPart = 0.05

// maxOutliers is the number of outliers that are described.
const maxOutliers = 3

// A rank is one of several traces.
type rank struct {
	explained
	excess  int64  // requested bytes at the peak above the median
	line    string // with the largest part of the excess
	byLine  int64  // that part
	outlier bool
}

// distance is that of the peak from the median, in bytes.
func (r *rank) distance() int64 { return max(r.excess, -r.excess) }

// writeRanks writes the ranks that differ from the others, and a table of all.
func writeRanks(w *page, all []explained) {
	ranks := compareRanks(all)
	for _, line := range rankAnswer(ranks) {
		w.paragraph("", line)
	}
	fmt.Fprintln(w)
	t := table{
		header: []string{"rank", "peak", "reserved", "needed", "failed", "cause"}, marked: -1,
	}
	for i := range ranks {
		r := ranks[i].report
		needed, failed := "-", "no"
		if len(r.Needed) > 0 && r.Needed[0].Bytes > 0 {
			needed = diagnose.FormatSize(r.Needed[0].Bytes)
		}
		if r.Failure != nil {
			failed = diagnose.FormatSize(r.Failure.Size)
		}
		var causes []string
		for _, v := range r.Verdicts {
			causes = append(causes, string(v.Cause))
		}
		if ranks[i].outlier && (t.marked < 0 || ranks[i].distance() > ranks[t.marked].distance()) {
			t.marked = i
		}
		t.rows = append(t.rows, []string{
			ranks[i].name, diagnose.FormatSize(r.RequestedPeak), diagnose.FormatSize(r.ReservedPeak), needed, failed,
			strings.Join(causes, ","),
		})
	}
	t.write(w)
}

// compareRanks finds the outliers.
func compareRanks(all []explained) []rank {
	ranks := make([]rank, len(all))
	peaks := make([]int64, len(all))
	lines := make([]map[string]int64, len(all))
	names := map[string]bool{}
	for i := range all {
		ranks[i].explained = all[i]
		peaks[i] = all[i].report.RequestedPeak
		lines[i] = map[string]int64{}
		for _, h := range all[i].report.Holders {
			lines[i][h.Values[0]] += h.Bytes
			names[h.Values[0]] = true
		}
	}
	middle := median(peaks)
	for i := range ranks {
		r := &ranks[i]
		r.excess = peaks[i] - middle
		r.outlier = float64(r.distance()) > outlierPart*float64(middle)
	}
	for name := range names {
		of := make([]int64, len(lines))
		for i := range lines {
			of[i] = lines[i][name]
		}
		middle := median(of)
		for i := range ranks {
			r, part := &ranks[i], of[i]-middle
			if r.excess < 0 {
				part = -part
			}
			if own := max(r.byLine, -r.byLine); part > own || part == own && part > 0 && name < r.line {
				r.byLine, r.line = of[i]-middle, name
			}
		}
	}
	return ranks
}

// median returns the lower median of numbers.
func median(all []int64) int64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)/2]
}

// rankAnswer returns the answer in three sentences: which rank differs, which line makes the difference, and why
// requests failed.
func rankAnswer(ranks []rank) (lines []string) {
	var out []*rank
	failed := map[diagnose.Cause][]string{}
	failures := 0
	for i := range ranks {
		r := &ranks[i]
		if r.outlier {
			out = append(out, r)
		}
		if r.report.Failure != nil {
			failures++
			cause := r.report.Verdicts[0].Cause
			failed[cause] = append(failed[cause], r.name)
		}
	}
	slices.SortStableFunc(out, func(a, b *rank) int { return cmp.Compare(b.distance(), a.distance()) })
	if len(out) == 0 {
		lines = append(lines, fmt.Sprintf("The %d traces are alike: no peak differs from the median by more than %.0f %%.",
			len(ranks), 100*outlierPart))
	}
	for _, r := range out[:min(len(out), maxOutliers)] {
		than := "more"
		if r.excess < 0 {
			than = "less"
		}
		n := r.distance()
		text := fmt.Sprintf("%s has %s (%s) %s at its peak than the median of the %d traces", r.name, diagnose.FormatSize(n),
			bytesize.Percent(n, r.report.RequestedPeak-r.excess), than, len(ranks))
		if r.line != "" {
			text += ": most of it at " + r.line
		}
		lines = append(lines, text+".")
	}
	if failures == 0 {
		return append(lines, "No request failed in any of them.")
	}
	for _, cause := range causesOf(failed) {
		names := failed[cause]
		more := ""
		if len(names) > 3 {
			names, more = names[:3], fmt.Sprintf(" and %d more", len(names)-3)
		}
		lines = append(lines, fmt.Sprintf("Requests failed in %s%s: %s.", strings.Join(names, ", "), more, cause))
	}
	return lines
}

// causesOf returns the causes, that of most ranks first.
func causesOf(failed map[diagnose.Cause][]string) (causes []diagnose.Cause) {
	for cause := range failed {
		causes = append(causes, cause)
	}
	slices.SortFunc(causes, func(a, b diagnose.Cause) int {
		return cmp.Or(cmp.Compare(len(failed[b]), len(failed[a])), cmp.Compare(a, b))
	})
	return causes
}
