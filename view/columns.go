package view

import (
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/holders"
)

// Limits of a picture.
const (
	maxColumns = 4096
	maxRows    = 4096
	maxRects   = 200_000
	minRects   = 10_000 // so that there is a picture with this maximum: see addressPainter.fit
)

// A window is the part of a recording that a picture shows.
type window struct {
	byTime    bool    // the axis is the time; otherwise events
	from, to  float64 // of the axis
	width     int     // columns at most
	height    int     // rows
	low, high int64   // visible bytes; high 0 means the highest that is reached
	max       int     // rectangles at most
	match     func(i uint32) bool
}

// A column is a vertical part of a picture. It shows the state after event.
type column struct {
	first, event int
	high, low    int64 // requested memory of all blocks
	reserved     int64
}

// columns divides a window into columns, and makes its range exact.
func (r *Recording) columns(w *window) []column {
	if w.byTime {
		return r.timeColumns(w)
	}
	first := max(-1, int(math.Floor(max(w.from, -1))))
	limit := min(r.events(), int(math.Ceil(min(w.to, float64(r.events())))))
	if limit <= first {
		first = min(first, r.events()-1)
		limit = first + 1
	}
	w.from, w.to = float64(first), float64(limit)
	n := min(w.width, limit-first)
	list := make([]column, n)
	for c := range list {
		list[c] = r.column(first+(limit-first)*c/n, first+(limit-first)*(c+1)/n)
	}
	return list
}

// timeColumns divides a range of time. A column has the states of its time, the first of which may be older.
func (r *Recording) timeColumns(w *window) []column {
	end := float64(r.duration()) + 1
	w.from, w.to = min(max(w.from, 0), end-1), min(w.to, end)
	if w.to <= w.from {
		w.to = w.from + 1
	}
	list := make([]column, w.width)
	first := r.eventAt(w.from)
	for c := range list {
		last := r.eventAt(math.Nextafter(w.from+(w.to-w.from)*float64(c+1)/float64(w.width), 0))
		last = max(last, first)
		list[c] = r.column(first, last+1)
		first = last
	}
	return list
}

// column returns the column of the states after the events first to limit-1.
func (r *Recording) column(first, limit int) column {
	x := r.h.Extremes(first, limit)
	reserved, _ := reservedIn(r.levels, first, limit-1)
	return column{first: first, event: int(x.At), high: x.High, low: x.Low, reserved: reserved}
}

// addColumns adds the arrays of columns to a container, and returns the peaks in the header.
func (r *Recording) addColumns(c *container, w *window, list []column) {
	n := len(list)
	first, event := make([]uint32, n), make([]uint32, n)
	time, high, low, reserved := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	var peak, reservedPeak int64
	for i, x := range list {
		first[i], event[i] = uint32(x.first), uint32(x.event)
		time[i] = float64(r.timeOf(x.event))
		high[i], low[i], reserved[i] = float64(x.high), float64(x.low), float64(x.reserved)
		peak, reservedPeak = max(peak, x.high), max(reservedPeak, x.reserved)
	}
	axis := "event"
	if w.byTime {
		axis = "time"
	}
	c.header["axis"], c.header["from"], c.header["to"] = axis, w.from, w.to
	c.header["columns"], c.header["peak"], c.header["reserved_peak"] = n, peak, reservedPeak
	c.add("first", first)
	c.add("event", event)
	c.add("time", time)
	c.add("requested", high)
	c.add("requested_low", low)
	c.add("reserved", reserved)
}

// rects are the rectangles of a picture, as arrays.
type rects struct {
	x0, x1 []uint32
	y, h   []float64
	block  []uint32 // or missing, for merged blocks
	count  []uint32
	like   []uint32 // the block whose properties the rectangle has
	fill   []uint8
}

// missing is the number of no block.
const missing = math.MaxUint32

// reset removes all rectangles and keeps their memory.
func (t *rects) reset() {
	t.x0, t.x1, t.y, t.h = t.x0[:0], t.x1[:0], t.y[:0], t.h[:0]
	t.block, t.count, t.like, t.fill = t.block[:0], t.count[:0], t.like[:0], t.fill[:0]
}

// add adds a rectangle of a block, or of several merged ones, and returns its index.
func (t *rects) add(x0, x1 int, y, h float64, block, count, like uint32, fill uint8) int {
	t.x0, t.x1 = append(t.x0, uint32(x0)), append(t.x1, uint32(x1))
	t.y, t.h = append(t.y, y), append(t.h, h)
	t.block, t.count = append(t.block, block), append(t.count, count)
	t.like, t.fill = append(t.like, like), append(t.fill, fill)
	return len(t.x0) - 1
}

// addRects adds the arrays of rectangles to a container.
func (r *Recording) addRects(c *container, t *rects, withFill bool) {
	for _, a := range []struct {
		name  string
		array any
	}{
		{"x0", t.x0},
		{"x1", t.x1},
		{"y", t.y},
		{"h", t.h},
		{"block", t.block},
		{"count", t.count},
	} {
		c.add(a.name, a.array)
	}
	r.addBlocks(c, t.like)
	if withFill {
		c.add("fill", t.fill)
	}
}

// addBlocks adds the arrays of the properties of blocks to a container. It returns the blocks.
func (r *Recording) addBlocks(c *container, list []uint32) []holders.Block {
	n := len(list)
	blocks := make([]holders.Block, n)
	category, stream, line, start := make([]uint8, n), make([]uint16, n), make([]uint32, n), make([]uint32, n)
	for i, k := range list {
		b := r.h.Block(int(k))
		blocks[i] = b
		category[i], stream[i] = uint8(b.Category), uint16(min(b.Stream, math.MaxUint16))
		line[i], start[i] = r.line(&b), uint32(b.Start)
	}
	c.add("category", category)
	c.add("stream", stream)
	c.add("line", line)
	c.add("start", start)
	return blocks
}

// check returns an error for a window that no picture can have.
func (w *window) check() error {
	switch {
	case math.IsNaN(w.from) || math.IsNaN(w.to):
		return fmt.Errorf("from and to: want numbers")
	case w.width < 1 || w.width > maxColumns:
		return fmt.Errorf("width %d: want 1 to %d", w.width, maxColumns)
	case w.height < 1 || w.height > maxRows:
		return fmt.Errorf("height %d: want 1 to %d", w.height, maxRows)
	case w.max < minRects || w.max > maxRects:
		return fmt.Errorf("max %d: want %d to %d", w.max, minRects, maxRects)
	case w.low < 0 || w.high < 0 || w.high > 0 && w.high <= w.low:
		return fmt.Errorf("low %d and high %d: want 0 <= low < high", w.low, w.high)
	}
	return nil
}
