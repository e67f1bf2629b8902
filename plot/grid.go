package plot

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A grid is a map of addresses in cells: for each, the group that has most of it, free memory, or nothing.
type grid struct {
	x     *addressesPanel
	cells [mapColumns][mapRows]uint8 // from the lowest address: a kind plus 1, or 0
	free  int                        // the kind of free memory; kinds below it are groups
}

// A span is an interval of the ranges, in bytes, during some columns.
type span struct {
	from, to     int64
	start, until int // columns
	kind         int
}

func newGrid(x *addressesPanel) *grid {
	g := &grid{x: x, free: len(x.groups.all)}
	if x.total == 0 {
		return g
	}
	spans := append(g.segments(), g.blocks()...)
	slices.SortStableFunc(spans, func(a, b span) int { return a.start - b.start })
	var current []span
	next := 0
	sums := make([]float64, mapRows*(g.free+1))
	for c := range mapColumns {
		current = slices.DeleteFunc(current, func(s span) bool { return s.until <= c })
		for ; next < len(spans) && spans[next].start <= c; next++ {
			current = append(current, spans[next])
		}
		clear(sums)
		for i := range current {
			g.add(sums, &current[i])
		}
		for row := range mapRows {
			g.cells[c][row] = g.decide(sums[row*(g.free+1) : (row+1)*(g.free+1)])
		}
	}
	return g
}

// segments returns the reserved memory.
func (g *grid) segments() (spans []span) {
	for i := range g.x.segments {
		s := &g.x.segments[i]
		spans = g.append(spans, s.Ptr, s.Size, s.Start, s.End, g.free)
	}
	return spans
}

// blocks returns the blocks.
func (g *grid) blocks() (spans []span) {
	for i := range g.x.h.NumBlocks() {
		b := g.x.h.Block(i)
		if from, to := g.x.columns.span(b.Start, b.End); from < to {
			spans = g.append(spans, b.Ptr, b.Size, b.Start, b.End, g.x.groups.of(&b))
		}
	}
	return spans
}

func (g *grid) append(spans []span, ptr driver.Pointer, size int64, start, end int32, kind int) []span {
	from, until := g.x.columns.span(start, end)
	offset, ok := g.x.offset(ptr)
	if !ok || from >= until {
		return spans
	}
	return append(spans, span{offset, min(offset+size, g.x.total), from, until, kind})
}

// add adds a span to the rows that it covers. A sum is in rows.
func (g *grid) add(sums []float64, s *span) {
	scale := mapRows / float64(g.x.total)
	from, to := float64(s.from)*scale, float64(s.to)*scale
	for row := int(from); row < mapRows && float64(row) < to; row++ {
		sums[row*(g.free+1)+s.kind] += min(to, float64(row+1)) - max(from, float64(row))
	}
}

// decide returns the content of a cell: what has at least half of it. The last of the sums is that of reserved memory.
func (g *grid) decide(sums []float64) uint8 {
	best, used := 0, 0.0
	for i, s := range sums[:g.free] {
		used += s
		if s > sums[best] {
			best = i
		}
	}
	switch {
	case used >= 0.5:
		return uint8(best + 1)
	case sums[g.free] >= 0.5:
		return uint8(g.free + 1)
	}
	return 0
}

// rects returns the rectangles of each kind, with the upper left corner of the grid at x and y. Equal neighbors in a
// row are one, and so are equal ones in consecutive rows.
func (g *grid) rects(x, y float64) [][]rect {
	all := make([][]rect, g.free+1)
	type run struct {
		from, to int
		kind     uint8
	}
	var open map[run]int                      // the index of the rectangle that ends in the row above
	for row := mapRows - 1; row >= 0; row-- { // from the top of the picture
		above := open
		open = map[run]int{}
		for c := 0; c < mapColumns; {
			r := run{from: c, kind: g.cells[c][row]}
			for ; c < mapColumns && g.cells[c][row] == r.kind; c++ {
				continue
			}
			if r.to = c; r.kind == 0 {
				continue
			}
			same := &all[r.kind-1]
			n, ok := above[r]
			if !ok {
				n = len(*same)
				*same = append(*same, rect{
					x: x + float64(r.from*cellSize), y: y + float64((mapRows-1-row)*cellSize),
					width: float64((r.to - r.from) * cellSize),
				})
			}
			(*same)[n].height += cellSize
			open[r] = n
		}
	}
	return all
}
