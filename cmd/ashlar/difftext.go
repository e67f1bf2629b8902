package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// write writes a comparison: the answer in sentences, the changes, and the steps that changed the most.
func (c *diffCmd) write(p *page, x *comparison) {
	width := p.width
	p.width = min(width, holdersWidth)
	defer func() { p.width = width }()
	device := ""
	if x.among {
		device = fmt.Sprintf(", device %d", x.Device)
	}
	p.paragraph("", fmt.Sprintf("%s against %s%s: %s", x.names[1], x.names[0], device, x.headline()))
	for _, text := range []string{x.reasons(), x.stepText(), x.growthText()} {
		if text != "" {
			p.paragraph("", text)
		}
	}
	x.writeChanges(p, c.Top)
	x.writeSteps(p)
}

// headline says how much the requested memory changed.
func (x *comparison) headline() string {
	before, after := bytesize.Format(x.Requested[0]), bytesize.Format(x.Requested[1])
	moment := "at " + x.Moments[1]
	switch d := x.Change; {
	case d == 0:
		return fmt.Sprintf("%s requested %s, as before.", after, moment)
	default:
		more := "more"
		if d < 0 {
			more = "less"
		}
		return fmt.Sprintf("%s %s (%s), %s requested %s instead of %s.", bytesize.Format(abs(d)), more,
			bytesize.Percent(abs(d), x.Requested[0]), after, moment, before)
	}
}

// maxReasons is the number of changes that reasons names.
const maxReasons = 3

// reasons names the changes that make up most of the difference, or that cancel each other.
func (x *comparison) reasons() string {
	gross := int64(0)
	for i := range x.Changes {
		gross += abs(x.Changes[i].change())
	}
	var parts []string
	for i := range x.Changes {
		c := &x.Changes[i]
		d := c.change()
		if len(parts) == maxReasons || abs(d)*20 < gross || d == 0 {
			break
		}
		how := "grew by"
		switch {
		case c.Bytes[0] == 0:
			how = "is new with"
		case c.Bytes[1] == 0:
			how = "is gone with"
		case d < 0:
			how = "shrank by"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", c.label, how, bytesize.Format(abs(d))))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + "."
}

func abs(n int64) int64 { return max(n, -n) }

// notable reports whether two sizes differ by more than a percent.
func notable(sizes [2]int64) bool { return abs(sizes[1]-sizes[0])*100 > max(sizes[0], sizes[1]) }

// stepText says from which step on the peaks differ.
func (x *comparison) stepText() string {
	if len(x.Steps) == 0 {
		return ""
	}
	both := fmt.Sprintf("Both have %s", plural(len(x.Steps), "step"))
	first := slices.IndexFunc(x.Steps, func(s stepLine) bool { return notable(s.Peak) })
	if first < 0 {
		return both + ", whose peaks differ by at most 1 %."
	}
	n, most := 0, x.Steps[first]
	for _, s := range x.Steps[first:] {
		if notable(s.Peak) {
			n++
		}
		if abs(s.Peak[1]-s.Peak[0]) > abs(most.Peak[1]-most.Peak[0]) {
			most = s
		}
	}
	more := "more"
	if most.Peak[1] < most.Peak[0] {
		more = "less"
	}
	return fmt.Sprintf("%s. The peaks of %s differ by more than 1 %%, the first in step %s; step %s has %s %s.", both,
		count(n), count(x.Steps[first].Step), count(most.Step), bytesize.Format(abs(most.Peak[1]-most.Peak[0])), more)
}

// minGrowthSteps is the number of steps from which on growth from step to step is told.
const minGrowthSteps = 4

// growthText says that one run keeps more memory after each step, and the other does not.
func (x *comparison) growthText() string {
	if len(x.Steps) < minGrowthSteps {
		return ""
	}
	before, after := x.growth(0), x.growth(1)
	if abs(after-before)*1000 < max(x.Requested[0], x.Requested[1]) {
		return ""
	}
	kept := "no more"
	if before != 0 {
		kept = bytesize.Format(before) + " more"
	}
	if after == 0 {
		return fmt.Sprintf("After most steps %s keeps %s than after the one before, and %s no more.", x.names[0], kept,
			x.names[1])
	}
	return fmt.Sprintf("After most steps %s keeps %s more than after the one before, and %s %s.", x.names[1],
		bytesize.Format(after), x.names[0], kept)
}

// growth is the median of the memory that a run keeps after a step beyond that after the one before, or 0 if that is
// less than 0. The first step does not count, because it fills caches.
func (x *comparison) growth(run int) int64 {
	var more []int64
	for i := 2; i < len(x.Steps); i++ {
		more = append(more, x.Steps[i].Final[run]-x.Steps[i-1].Final[run])
	}
	slices.Sort(more)
	return max(0, more[(len(more)-1)/2])
}

// writeChanges writes a table of the changes, and the sum of those that it leaves out.
func (x *comparison) writeChanges(p *page, most uint) {
	all := x.Changes
	if most > 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(c changeLine) bool { return c.Bytes[0] == c.Bytes[1] })
	}
	shown := all
	if most > 0 && uint(len(all)) > most+1 {
		shown = all[:most]
	}
	if len(shown) == 0 {
		fmt.Fprintln(p, "Nothing changed.")
		return
	}
	fmt.Fprintf(p, "\n%s %s %s %s  %s\n", pad("change", 12), pad("before", 10), pad("after", 10), pad("blocks", 8),
		strings.Join(x.By, ", "))
	line := func(bytes [2]int64, blocks [2]int, label string) {
		p.paragraph(fmt.Sprintf("%s %s %s %s  ", pad(signed(bytes[1]-bytes[0]), 12), pad(bytesize.Format(bytes[0]), 10),
			pad(bytesize.Format(bytes[1]), 10), pad(signedCount(blocks[1]-blocks[0]), 8)), label)
	}
	for _, c := range shown {
		line(c.Bytes, c.Blocks, c.label)
	}
	if rest := all[len(shown):]; len(rest) > 0 {
		var bytes [2]int64
		var blocks [2]int
		for _, c := range rest {
			for i := range 2 {
				bytes[i] += c.Bytes[i]
				blocks[i] += c.Blocks[i]
			}
		}
		line(bytes, blocks, fmt.Sprintf("%s others; --top 0 shows all", count(len(rest))))
	}
}

// signed writes a change of memory.
func signed(n int64) string {
	switch {
	case n > 0:
		return "+" + bytesize.Format(n)
	case n < 0:
		return "-" + bytesize.Format(-n)
	}
	return "0B"
}

func signedCount(n int) string {
	if n > 0 {
		return "+" + count(n)
	}
	return count(n)
}

// maxSteps is the number of steps in a table.
const maxSteps = 10

// writeSteps writes the steps whose peaks changed the most, in order.
func (x *comparison) writeSteps(p *page) {
	var changed []stepLine
	for _, s := range x.Steps {
		if notable(s.Peak) {
			changed = append(changed, s)
		}
	}
	slices.SortStableFunc(changed, func(a, b stepLine) int {
		return int(abs(b.Peak[1]-b.Peak[0])>>10 - abs(a.Peak[1]-a.Peak[0])>>10)
	})
	changed = changed[:min(len(changed), maxSteps)]
	slices.SortFunc(changed, func(a, b stepLine) int { return a.Step - b.Step })
	if len(changed) == 0 {
		return
	}
	fmt.Fprintf(p, "\n%s %s %s  %s\n", pad("change", 12), pad("before", 10), pad("after", 10), "peak of step")
	for _, s := range changed {
		fmt.Fprintf(p, "%s %s %s  %s\n", pad(signed(s.Peak[1]-s.Peak[0]), 12), pad(bytesize.Format(s.Peak[0]), 10),
			pad(bytesize.Format(s.Peak[1]), 10), count(s.Step))
	}
}
