package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/trace"
)

// A Growth is live memory that grows from step to step.
type Growth struct {
	Steps   int    // over which it was seen
	Source  string // how the steps were found: holders.Steps.Source
	PerStep int64  // bytes, in the mean
	Bytes   int64  // of the blocks that remained at the end
	Blocks  int
	Lines   []GrowingLine // the largest first

	blocks []leaked
}

// A GrowingLine is a line of the program whose blocks of every step, or nearly every one, remain.
type GrowingLine struct {
	Label   string
	Stack   string // the lines of the user that led to its first block that remained, as holders.ByStack
	PerStep int64  // bytes, in the mean
	Bytes   int64
	Blocks  int
}

// leaked is a block that remained, and the last event of the step after the one that allocated it.
type leaked struct {
	start int32
	after int
}

const (
	leastSteps    = 4       // steps in which growth must be seen
	leastInferred = 6       // the same for steps without annotations
	leastGrowth   = 4 << 20 // bytes that must remain
	growthOfPeak  = 0.01    // part of the requested peak that must remain
	growthOften   = 0.8     // part of the steps of which a line must have blocks that remain
	manyRequests  = 12      // requests in a step that is not a layer
)

// findGrowth sets Report.Growth.
func (x *explainer) findGrowth() {
	found := x.h.Steps()
	steps := x.completeSteps(found.List)
	// The first steps allocate what all later ones use. The last one may be about to free its blocks.
	warm := max(1, len(steps)/8)
	if len(steps) < warm+1+leastSteps {
		return
	}
	counted := steps[warm : len(steps)-1]
	if found.Inferred && (len(counted) < leastInferred || !x.isLoop(counted)) {
		return
	}
	end := steps[len(steps)-1].Last // the program may free everything afterwards
	g := &Growth{Steps: len(counted), Source: found.Source}
	byLine := map[string]*lineGrowth{}
	for i := range x.h.Blocks {
		b := &x.h.Blocks[i]
		if !b.Recorded || int(b.Freed) <= end || !within(counted, b) {
			continue
		}
		n := stepOf(counted, int(b.Start))
		if int(b.Start) < counted[n].First {
			continue
		}
		line := x.h.Label(holders.ByLine, b)
		l := byLine[line]
		if l == nil {
			l = &lineGrowth{
				GrowingLine: GrowingLine{Label: line, Stack: x.h.Label(holders.ByStack, b)}, inStep: make([]bool, len(counted)),
			}
			byLine[line] = l
		}
		l.Bytes += b.Size
		l.Blocks++
		l.inStep[n] = true
		l.leaked = append(l.leaked, leaked{b.Start, steps[warm+n+1].Last})
	}
	for _, l := range byLine {
		if !l.grows() {
			continue
		}
		l.PerStep = l.Bytes / int64(len(counted))
		g.Lines = append(g.Lines, l.GrowingLine)
		g.Bytes += l.Bytes
		g.Blocks += l.Blocks
		g.blocks = append(g.blocks, l.leaked...)
	}
	if found.Inferred && !x.plausible(counted, g.Bytes) {
		return
	}
	if g.Bytes < leastGrowth || float64(g.Bytes) < growthOfPeak*float64(x.r.RequestedPeak) {
		return
	}
	g.PerStep = g.Bytes / int64(len(counted))
	slices.SortFunc(g.Lines, func(a, b GrowingLine) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Label, b.Label))
	})
	slices.SortFunc(g.blocks, func(a, b leaked) int { return cmp.Compare(a.start, b.start) })
	x.r.Growth = g
}

// completeSteps returns the steps that ended before the failed request.
func (x *explainer) completeSteps(all []holders.Step) (steps []holders.Step) {
	end := len(x.h.Trace.Events)
	if f := x.r.Failure; f != nil {
		end = f.Entry
	}
	for _, s := range all {
		if !s.Partial && s.Last < end {
			steps = append(steps, s)
		}
	}
	return steps
}

// lineGrowth counts the blocks of a line that remained.
type lineGrowth struct {
	GrowingLine
	inStep []bool
	leaked []leaked
}

// grows reports whether the line has blocks of most steps.
func (l *lineGrowth) grows() bool {
	n := 0
	for _, in := range l.inStep {
		if in {
			n++
		}
	}
	return float64(n) >= growthOften*float64(len(l.inStep))
}

func (g *Growth) sentence() string {
	text := fmt.Sprintf("Live memory grew by %s a step over %d steps (by %s).", FormatSize(g.PerStep), g.Steps, g.Source)
	for i, l := range g.Lines[:min(len(g.Lines), 3)] {
		if i == 0 {
			text += fmt.Sprintf(" %s holds %s in %d blocks, from every step", l.Label, FormatSize(l.Bytes), l.Blocks)
			continue
		}
		text += fmt.Sprintf("; %s %s", l.Label, FormatSize(l.Bytes))
	}
	return text + "."
}

// isLoop reports whether inferred steps are those of a program. The layers of one forward pass, or of one backward
// pass, repeat as well, and the activations and gradients of each remain. But then all requests come from within a
// module or from the backward pass. Without stacks that cannot be told.
func (x *explainer) isLoop(steps []holders.Step) bool {
	stacks := x.h.Trace.Stacks
	var common []uint32 // frames, the innermost first
	known := false
	for i := range x.h.Blocks {
		b := &x.h.Blocks[i]
		frames := stacks.At(b.Stack)
		if len(frames) == 0 || !within(steps, b) {
			continue
		}
		if !known {
			common, known = frames, true
		}
		common = commonEnd(common, frames)
	}
	return known && !slices.ContainsFunc(common, func(n uint32) bool {
		file := strings.ReplaceAll(stacks.Frames[n].Filename, `\`, "/")
		return strings.HasSuffix(file, "torch/nn/modules/module.py") || strings.Contains(file, "torch/autograd/") ||
			strings.HasSuffix(file, "torch/utils/checkpoint.py")
	})
}

// commonEnd returns the longest common end of two lists.
func commonEnd(a, b []uint32) []uint32 {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}

// transient returns the bytes that were allocated in steps and freed by their end.
func (x *explainer) transient(steps []holders.Step) (bytes int64) {
	for i := range x.h.Blocks {
		b := &x.h.Blocks[i]
		if b.Recorded && within(steps, b) && int(b.Freed) <= steps[stepOf(steps, int(b.Start))].Last {
			bytes += b.Size
		}
	}
	return bytes
}

// plausible reports whether inferred steps, of which so many bytes remain, look like those of a program: they free much of
// what they allocate, and a program that failed made more than a few requests in each. A loop that fills the memory once
// does not.
func (x *explainer) plausible(steps []holders.Step, remain int64) bool {
	transient := x.transient(steps)
	switch {
	case transient >= 2*remain:
		return true
	case x.r.Failure == nil:
		return transient >= remain/2
	}
	requests := 0
	for i := range x.h.Blocks {
		if within(steps, &x.h.Blocks[i]) {
			requests++
		}
	}
	return requests >= manyRequests*len(steps) && transient >= remain/4
}

// within reports whether a block was allocated from the first to the last of some steps.
func within(steps []holders.Step, b *holders.Block) bool {
	return steps[0].First <= int(b.Start) && int(b.Start) <= steps[len(steps)-1].Last
}

// stepOf returns the index of the first step that ends at an event or later.
func stepOf(steps []holders.Step, event int) int {
	n, _ := slices.BinarySearchFunc(steps, event, func(s holders.Step, event int) int {
		return cmp.Compare(s.Last, event)
	})
	return n
}

// withoutGrowth returns p with frees of the blocks that leaked, at the end of the step after their own.
func (x *explainer) withoutGrowth(p *trace.Program) *trace.Program {
	after := map[int][]uint32{} // blocks by event
	leaks := map[int32]int{}
	for _, l := range x.r.Growth.blocks {
		leaks[l.start] = l.after
	}
	freed := map[uint32]bool{}
	c := *p
	c.Ops, c.Entries = nil, nil
	var due []int // events, ascending
	for i := range p.Ops {
		op, entry := p.Ops[i], p.Entries[i]
		for len(due) > 0 && entry != trace.NoEntry && int(entry) > due[0] {
			for _, block := range after[due[0]] {
				freed[block] = true
				c.Ops = append(c.Ops, trace.Op{Kind: trace.OpFree, Block: block})
				c.Entries = append(c.Entries, trace.NoEntry)
			}
			due = due[1:]
		}
		if freed[op.Block] && (op.Kind == trace.OpFree || op.Kind == trace.OpFreeDeferred || op.Kind == trace.OpComplete) {
			continue // its recorded free, which came later
		}
		c.Ops, c.Entries = append(c.Ops, op), append(c.Entries, entry)
		if op.Kind != trace.OpAlloc || entry == trace.NoEntry {
			continue
		}
		if event, ok := leaks[int32(entry)]; ok {
			if len(after[event]) == 0 {
				due = append(due, event)
			}
			after[event] = append(after[event], op.Block)
		}
	}
	return &c
}
