package diagnose

import (
	"cmp"
	"fmt"
	"slices"

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
	leastSteps   = 4       // steps in which growth must be seen
	leastGrowth  = 4 << 20 // bytes that must remain
	growthOfPeak = 0.01    // part of the requested peak that must remain
	growthOften  = 0.8     // part of the steps of which a line must have blocks that remain
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
	for i := range x.h.NumBlocks() {
		b := x.h.Block(i)
		if !b.Recorded || int(b.Freed) <= end || !within(counted, &b) {
			continue
		}
		n := stepOf(counted, int(b.Start))
		if int(b.Start) < counted[n].First {
			continue
		}
		line := x.h.Label(holders.ByLine, &b)
		l := byLine[line]
		if l == nil {
			l = &lineGrowth{
				GrowingLine: GrowingLine{Label: line, Stack: x.h.Label(holders.ByStack, &b)}, inStep: make([]bool, len(counted)),
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
	end := x.h.Trace.Len()
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
func (l *lineGrowth) grows() bool { return often(l.inStep) }

// often reports whether nearly all of some steps are marked.
func often(steps []bool) bool {
	n := 0
	for _, in := range steps {
		if in {
			n++
		}
	}
	return float64(n) >= growthOften*float64(len(steps))
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
