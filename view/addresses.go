package view

import (
	"math"
	"sort"
)

// addressesPicture shows segments and the blocks in them by their addresses. Blocks less than a row high are merged:
// a rectangle of theirs has the part of it that they occupy. Blocks that no column shows are left out.
func (r *Recording) addressesPicture(w *window) *container {
	list := r.columns(w)
	spans, length := r.addressAxis()
	clipped := w.high > 0
	if w.high == 0 {
		w.high = max(length, w.low+1)
	}
	p := &addressPainter{r: r, w: w, list: list, spans: spans, rows: w.height, segmented: true}
	p.place = func(i uint32) (int64, bool) { return yOf(spans, r.lives.Ptr(int(i))) }
	p.fit()
	c := newContainer(map[string]any{
		"low": w.low, "high": w.high, "min_bytes": p.least, "clipped": clipped, "ranges": len(spans),
	})
	r.addColumns(c, w, list)
	p.addSpans(c)
	p.addSegments(c)
	r.addRects(c, &p.blocks, true)
	return c
}

// An addressPainter makes a picture of addresses.
type addressPainter struct {
	r     *Recording
	w     *window
	list  []column
	spans []span
	place func(i uint32) (y int64, ok bool) // of a block
	rows  int
	least int64 // height of a row in bytes

	segmented bool // the picture has segments

	blocks   rects
	segments segmentRects
	cells    []cell // of small blocks: rows of columns
}

// A cell is a place of a row, for blocks that begin there: the changes of a row from column to column.
type cell struct {
	bytes float64
	count int32
	like  uint32 // one of the blocks plus 1
}

// segmentRects are the rectangles of segments, as arrays.
type segmentRects struct {
	x0, x1       []uint32
	y, h         []float64
	segment      []uint32
	stream, pool []uint16
	expandable   []uint8
}

// fit paints with as many rows as there is room for. There is room for one row: a column then has at most one block
// that fills it, or one rectangle of merged blocks.
func (p *addressPainter) fit() {
	for !p.paint() && p.rows > 1 {
		p.rows /= 2
	}
}

// paint makes the rectangles. It reports whether they are few enough.
func (p *addressPainter) paint() bool {
	p.least = max(1, (p.w.high-p.w.low+int64(p.rows)-1)/int64(p.rows))
	p.blocks.reset()
	p.segments = segmentRects{}
	n := p.rows * (len(p.list) + 1)
	if cap(p.cells) < n {
		p.cells = make([]cell, n)
	}
	p.cells = p.cells[:n]
	clear(p.cells)
	if p.segmented {
		p.paintSegments()
	}
	return p.paintBlocks() && p.paintCells()
}

// visible returns the columns that show a moment from start to end-1.
func (p *addressPainter) visible(start, end int32) (x0, x1 int) {
	x0 = sort.Search(len(p.list), func(i int) bool { return p.list[i].event >= int(start) })
	if x0 < len(p.list) && p.list[x0].event < int(end) {
		x1 = p.after(x0, end)
	}
	return x0, x1
}

// after returns the first column from x0 on that shows no moment before end.
func (p *addressPainter) after(x0 int, end int32) int {
	return x0 + sort.Search(len(p.list)-x0, func(i int) bool { return p.list[x0+i].event >= int(end) })
}

// eachVisible calls visit for the blocks that some column shows, with the first of their columns, in the order of their
// allocations, until it returns false.
func (p *addressPainter) eachVisible(visit func(i uint32, x0 int) bool) {
	r := p.r
	if len(p.list) == 0 {
		return
	}
	for _, i := range r.ends.active(r.lives, p.list[0].event, nil) {
		if !visit(i, 0) {
			return
		}
	}
	next, more := r.lives.Since(p.list[0].event), true
	for x := 1; x < len(p.list) && more; x++ {
		next = r.ends.begun(r.lives, next, p.list[x].event, func(i uint32) bool {
			more = visit(i, x)
			return more
		})
	}
}

// paintSegments adds the segments. Those that lie side by side for the same time are joined if they are small.
func (p *addressPainter) paintSegments() {
	t := &p.segments
	for i := range p.r.segments {
		g := &p.r.segments[i]
		x0, x1 := p.visible(g.Start, g.End)
		y, ok := yOf(p.spans, g.Ptr)
		if x1 <= x0 || !ok || y+g.Size <= p.w.low || y >= p.w.high {
			continue
		}
		stream, pool := p.r.streamNumber(g.Stream), p.r.poolNumber(g.Pool)
		if n := len(t.x0) - 1; n >= 0 && g.Size < 4*p.least && t.x0[n] == uint32(x0) && t.x1[n] == uint32(x1) &&
			t.y[n]+t.h[n] == float64(y) && t.stream[n] == stream && t.pool[n] == pool {
			t.h[n] += float64(g.Size)
			continue
		}
		t.x0, t.x1 = append(t.x0, uint32(x0)), append(t.x1, uint32(x1))
		t.y, t.h = append(t.y, float64(y)), append(t.h, float64(g.Size))
		t.segment = append(t.segment, uint32(i))
		t.stream, t.pool = append(t.stream, stream), append(t.pool, pool)
		t.expandable = append(t.expandable, uint8(truth(g.Expandable)))
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// paintBlocks adds the blocks that are at least a row high, and counts the others in cells.
func (p *addressPainter) paintBlocks() bool {
	fits := true
	p.eachVisible(func(i uint32, x0 int) bool {
		if p.w.match != nil && !p.w.match(i) {
			return true
		}
		l := p.r.lives
		x1 := p.after(x0, int32(l.End(int(i))))
		size := l.Size(int(i))
		y, ok := p.place(i)
		if !ok || y+size <= p.w.low || y >= p.w.high || size == 0 {
			return true
		}
		if size >= p.least {
			if fits = len(p.blocks.x0) < p.w.max; fits {
				p.blocks.add(x0, x1, float64(y), float64(size), i, 1, i, 255)
			}
			return fits
		}
		row := int((max(y, p.w.low) - p.w.low) / p.least)
		if row < p.rows {
			from, to := &p.cells[row*(len(p.list)+1)+x0], &p.cells[row*(len(p.list)+1)+x1]
			from.bytes, from.count, from.like = from.bytes+float64(size), from.count+1, i+1
			to.bytes, to.count = to.bytes-float64(size), to.count-1
		}
		return true
	})
	return fits
}

// shades is the number of fills that merged blocks are told apart by.
const shades = 8

// paintCells adds the small blocks, row by row.
func (p *addressPainter) paintCells() bool {
	width := len(p.list)
	for row := range p.rows {
		var sum cell
		begun, shade, like, count := 0, 0, uint32(0), int32(0)
		for x := range width + 1 {
			c := p.cells[row*(width+1)+x]
			sum.bytes, sum.count = sum.bytes+c.bytes, sum.count+c.count
			if c.like > 0 {
				sum.like = c.like
			}
			now := 0
			if sum.count > 0 && x < width {
				now = max(1, int(math.Round(min(1, sum.bytes/float64(p.least))*shades)))
			}
			if now == shade {
				count = max(count, sum.count)
				continue
			}
			if shade > 0 {
				if len(p.blocks.x0) == p.w.max {
					return false
				}
				y := float64(p.w.low + int64(row)*p.least)
				p.blocks.add(begun, x, y, float64(p.least), missing, uint32(count), like-1, uint8(shade*255/shades))
			}
			begun, shade, like, count = x, now, sum.like, sum.count
		}
	}
	return true
}

// addSpans adds the ranges of the axis of addresses.
func (p *addressPainter) addSpans(c *container) {
	y, address, size := make([]float64, len(p.spans)), make([]uint64, len(p.spans)), make([]float64, len(p.spans))
	for i, s := range p.spans {
		y[i], address[i], size[i] = float64(s.y), uint64(s.ptr), float64(s.size)
	}
	c.add("range_y", y)
	c.add("range_address", address)
	c.add("range_size", size)
}

func (p *addressPainter) addSegments(c *container) {
	t := &p.segments
	c.add("sx0", t.x0)
	c.add("sx1", t.x1)
	c.add("sy", t.y)
	c.add("sh", t.h)
	c.add("segment", t.segment)
	c.add("sstream", t.stream)
	c.add("spool", t.pool)
	c.add("sexpandable", t.expandable)
}
