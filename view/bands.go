package view

import "math"

// A band is a part of a column: one block, or several that are merged.
type band struct {
	id    uint32 // the first block
	count uint32
	like  uint32 // the largest block
	most  int64  // its size
	y, h  int64
}

// bandsPicture stacks the active blocks in the order of their allocations, as PyTorch's memory_viz does: the band of a
// block falls when one below it is freed. Bands less than a row high are merged with their neighbours.
func (r *Recording) bandsPicture(w *window) *container {
	list := r.columns(w)
	clipped := w.high > 0
	if w.high == 0 {
		for _, c := range list {
			w.high = max(w.high, c.high)
		}
		w.high = max(w.high, w.low+1)
	}
	least := max(1, (w.high-w.low)/int64(w.height))
	t := &rects{}
	for !r.bands(w, list, least, t) {
		if least > (w.high-w.low)/2 { // a column has few bands
			w.width = (len(list) + 1) / 2
			list = r.columns(w)
		} else {
			least *= 2
		}
	}
	c := newContainer(map[string]any{"low": w.low, "high": w.high, "min_bytes": least, "clipped": clipped})
	r.addColumns(c, w, list)
	r.addRects(c, t, false)
	return c
}

// bands makes the rectangles of a picture whose bands are at least least bytes high. It reports whether they are few
// enough.
func (r *Recording) bands(w *window, list []column, least int64, t *rects) bool {
	t.reset()
	set := activeSet{r: r, match: w.match}
	var before, now []band
	var open, next []int // the rectangle of each band
	for i := range list {
		if i > 0 && list[i].event == list[i-1].event {
			for _, n := range open {
				t.x1[n]++
			}
			continue
		}
		set.advance(list[i].event)
		now = r.stack(set.list, w, least, now[:0])
		next = next[:0]
		j := 0
		for n := range now {
			b := &now[n]
			for j < len(before) && before[j].id < b.id {
				j++
			}
			if j < len(before) && before[j].continues(b, t, open[j], least/8) {
				t.x1[open[j]]++
				next = append(next, open[j])
				continue
			}
			block := b.id
			if b.count > 1 {
				block = missing
			}
			if len(t.x0) == w.max {
				return false
			}
			next = append(next, t.add(i, i+1, float64(b.y), float64(b.h), block, b.count, b.like, 255))
		}
		before, now = now, before
		open, next = next, open
	}
	return true
}

// continues reports whether a band of the next column is that of a rectangle, which must not be further off than a
// tolerance.
func (b *band) continues(next *band, t *rects, rect int, tolerance int64) bool {
	off := func(a float64, b int64) bool { return math.Abs(a-float64(b)) > float64(tolerance) }
	return b.id == next.id && (b.count == 1) == (next.count == 1) && !off(t.y[rect], next.y) && !off(t.h[rect], next.h) &&
		(next.count > 1 || t.h[rect] == float64(next.h))
}

// stack appends the visible bands of active blocks, from the lowest one up.
func (r *Recording) stack(active []uint32, w *window, least int64, bands []band) []band {
	y := int64(0)
	var run band // small blocks that are being merged
	flush := func() {
		if run.count > 0 {
			bands = append(bands, run)
		}
		run = band{}
	}
	for _, i := range active {
		size := r.lives.Size(int(i))
		bottom := y
		y += size
		if y <= w.low || size == 0 {
			continue
		}
		if bottom >= w.high {
			break
		}
		if size >= least {
			flush()
			bands = append(bands, band{id: i, count: 1, like: i, most: size, y: bottom, h: size})
			continue
		}
		if run.count == 0 {
			run.id, run.y = i, bottom
		}
		run.count++
		run.h += size
		if size > run.most {
			run.most, run.like = size, i
		}
		if run.h >= least {
			flush()
		}
	}
	flush()
	return bands
}
