package timeline

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// curveLines is how many lines a curve has.
const curveLines = 5

// step returns the time between two ticks of the axis: 1, 2 or 5 times a power of ten, and its decimals in
// milliseconds.
func (c *chart) step() (time.Duration, int) {
	least := float64(c.end-c.start) * tickWidth / float64(c.columns)
	for decimals, unit := 6, time.Duration(1); ; decimals, unit = decimals-1, unit*10 {
		for _, k := range []time.Duration{1, 2, 5} {
			if float64(k*unit) >= least || unit >= math.MaxInt64/100 {
				return k * unit, max(0, decimals)
			}
		}
	}
}

// scale draws the axis, and the times at its ticks below.
func (c *chart) scale(out io.Writer) {
	step, decimals := c.step()
	line := make([]string, c.columns)
	for i := range line {
		line[i] = c.axis
	}
	labels := make([]string, c.columns)
	tick := c.start / step * step
	if tick < c.start {
		tick += step
	}
	for ; tick <= c.end; tick += step {
		at := c.column(tick)
		text := strconv.FormatFloat(float64(tick)/float64(time.Millisecond), 'f', decimals, 64)
		if at >= c.columns {
			break
		}
		line[at] = c.tick
		if at+len(text) <= c.columns {
			for i, r := range text {
				labels[at+i] = string(r)
			}
		}
	}
	c.line(out, "", join(line))
	c.line(out, "ms", join(labels))
}

// curve draws a counter as an area below its values.
func (c *chart) curve(out io.Writer, s series) {
	least, most := s.least(), s.most()
	c.line(out, "", "")
	c.line(out, "", fmt.Sprintf("%s, at most %s", c.name(s.name, longestInTree), quantity(most, s.bytes)))
	heights := c.heights(s, least, most)
	whole := len(c.levels) - 1
	for line := curveLines - 1; line >= 0; line-- {
		cells := make([]string, c.columns)
		for i, h := range heights {
			cells[i] = c.levels[min(max(0, h-line*whole), whole)]
		}
		label := ""
		switch line {
		case curveLines - 1:
			label = quantity(most, s.bytes)
		case 0:
			label = quantity(least, s.bytes)
		}
		pad := max(0, c.gutter-1-utf8.RuneCountInString(label))
		c.line(out, strings.Repeat(" ", pad)+label, join(cells))
	}
}

// heights returns, for each column, how many parts of a line its largest value is high. A value holds until the next.
func (c *chart) heights(s series, least, most int64) []int {
	parts := float64(curveLines * (len(c.levels) - 1))
	highest := make([]int, c.columns)
	height := func(v int64) int {
		return int(math.Ceil((float64(v) - float64(least)) / max(1, float64(most)-float64(least)) * parts))
	}
	next, value := 0, 0
	for i := range highest {
		highest[i] = value
		for ; next < len(s.points) && min(c.column(s.points[next].at), c.columns-1) <= i; next++ {
			value = height(s.points[next].value)
			highest[i] = max(highest[i], value)
		}
	}
	return highest
}

func byValue(a, b moment) int {
	switch {
	case a.value < b.value:
		return -1
	case a.value > b.value:
		return 1
	}
	return 0
}

// most and least are the ends of a curve's scale, which has 0 in it.
func (s *series) most() int64  { return max(0, slices.MaxFunc(s.points, byValue).value) }
func (s *series) least() int64 { return min(0, slices.MinFunc(s.points, byValue).value) }
