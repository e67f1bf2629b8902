package main

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/holders"
)

// writeExplained writes the answer, and then the evidence with at most a number of holders, or all if it is 0.
func writeExplained(w *page, x *explained, most uint) {
	r := x.report
	for _, line := range r.Answer {
		fmt.Fprintln(w, clean(line, maxWhere))
	}
	fmt.Fprintf(w, "\n%s\n\n", x.name)
	field := func(name, format string, args ...any) {
		w.paragraph(pad("  "+name, -14), fmt.Sprintf(format, args...))
	}
	for i := range r.Verdicts {
		name := "cause"
		if i > 0 {
			name = "and"
		}
		v := &r.Verdicts[i]
		field(name, "%s (%s). %s", v.Cause, v.Confidence, v.Reason)
	}
	writeFailed(field, r)
	writeLayout(field, r)
	if g := r.Growth; g != nil {
		l := &g.Lines[0]
		text := fmt.Sprintf("%s a step over %s", diagnose.FormatSize(g.PerStep), plural(g.Steps, "step"))
		if !r.Has(diagnose.Leak) {
			text += ", which is not why the request failed"
		}
		field("grows", "%s; most at %s", text, clean(l.Stack, maxWord))
	}
	for i := range r.Needed {
		writeNeed(field, r, i)
	}
	fmt.Fprintln(w)
	w.paragraph("  ", fmt.Sprintf("held at %s, %s in all:", r.View.Moment.Name, diagnose.FormatSize(r.View.Bytes)))
	writeHolderTable(w, r.View, []holders.Key{holders.ByLine, holders.ByCategory}, most, diagnose.FormatSize)
	for _, note := range r.Notes {
		w.paragraph("Note: ", note)
	}
}

// writeFailed writes the request that failed.
func writeFailed(field func(name, format string, args ...any), r *diagnose.Report) {
	f := r.Failure
	if f == nil {
		return
	}
	text := fmt.Sprintf("%s on stream %#x, at entry %s", diagnose.FormatSize(f.Size), f.Stream, count(f.Entry))
	if r.Requester != "" {
		text += ", asked for by " + clean(r.Requester, maxWord)
	}
	if r.Failures > 1 {
		text += fmt.Sprintf("; the first of %s", plural(r.Failures, "failed request"))
	}
	field("failed", "%s", text)
	b := &r.Barrier
	left := fmt.Sprintf("%s reserved by the process, and %s free", diagnose.FormatSize(f.Reserved),
		diagnose.FormatSize(f.Free))
	if b.Others > 0 {
		left += fmt.Sprintf("; the other %s of %s are of others", diagnose.FormatSize(b.Others),
			diagnose.FormatSize(b.Memory))
	}
	field("GPU", "%s", left)
}

// writeNeed writes the memory that a setting needs.
func writeNeed(field func(name, format string, args ...any), r *diagnose.Report, i int) {
	n, name := &r.Needed[i], ""
	if i == 0 {
		name = "needs"
	}
	switch text := n.Name(); {
	case n.Bytes < 0:
		field(name, "more than any GPU has, with %s", text)
	case i == 0:
		field(name, "%s %s: the smallest limit under which a replay serves all requests",
			diagnose.FormatSize(n.Bytes), text)
	default:
		field(name, "%s with %s", diagnose.FormatSize(n.Bytes), text)
	}
}

// writeLayout writes how the reserved memory was used.
func writeLayout(field func(name, format string, args ...any), r *diagnose.Report) {
	l := r.Layout
	if l == nil {
		return
	}
	when, hole := "at the peak", "segments with live blocks, or unused ones"
	switch {
	case r.Failure != nil:
		when, hole = "when the request failed", "segments that the request could use"
	case r.Has(diagnose.PrivatePools):
		when = "at the end"
	}
	parts := []string{diagnose.FormatSize(l.Requested) + " in use"}
	add := func(n int64, format string, args ...any) {
		if n > 0 {
			parts = append(parts, diagnose.FormatSize(n)+" "+fmt.Sprintf(format, args...))
		}
	}
	add(l.Rounding, "rounding")
	add(l.FreeOwn, "free in %s", hole)
	add(l.FreePools, "free in %s", plural(l.PrivatePools, "private pool"))
	add(l.FreeStreams, "free on %s", plural(l.OtherStreams, "other stream"))
	field("reserved", "%s %s: %s", diagnose.FormatSize(l.Reserved), when, strings.Join(parts, ", "))
	if l.LargestHole > 0 && r.Failure != nil {
		field("holes", "the largest has %s", diagnose.FormatSize(l.LargestHole))
	}
	if !r.Has(diagnose.Fragmentation) {
		return
	}
	for i, p := range l.Pins {
		name, in := "", "in a segment of "
		if i == 0 {
			name = "pinned"
		}
		if p.Segments > 1 {
			in = fmt.Sprintf("in each of %s segments of ", count(p.Segments))
		}
		field(name, "%s %s%s, by %s%s", diagnose.FormatSize(p.Free), in, diagnose.FormatSize(p.Segment),
			plural(p.Blocks, "block"), mostOf(p.Blocks, p.Holder))
	}
	if m := l.Move; m != nil && m.Blocks > 0 && m.Bytes < r.Failure.Size {
		field("in the way", "%s in a segment of %s, in %s%s: the least that would have to move to make room",
			diagnose.FormatSize(m.Bytes), diagnose.FormatSize(m.Segment), plural(m.Blocks, "block"),
			mostOf(m.Blocks, m.Holder))
	}
}

// mostOf says which line allocated most of some blocks.
func mostOf(blocks int, holder string) string {
	switch {
	case strings.HasPrefix(holder, "("): // no line
		return ""
	case blocks == 1:
		return " of " + clean(holder, maxWord)
	}
	return ", most of " + clean(holder, maxWord)
}
