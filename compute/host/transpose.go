package host

import "unsafe"

// Where a copy reads along one axis and writes along another, one of both would touch a cache line and a page for each
// element, and many of them in one set of the cache if rows are a power of two apart. So such copies go in tiles: a
// tile is read by rows of the source (tileRow bytes each), turned in the cache, and written by rows of the destination
// (tileLen elements each).
const (
	tileLen = 64
	tileRow = 1024
	// from one row of the tile to the next: not a power of two, which would be few sets of the cache
	pitch = tileLen + 8
)

// transposes reports whether operand 1 has its smallest stride along another axis than operand 0, whose stride is 1
// along the last.
func (p *plan) transposes() bool { return p.sourceAxis() >= 0 }

// sourceAxis returns the axis along which operand 1 is read best, or -1 if that is the last, as it is for operand 0.
func (p *plan) sourceAxis() int {
	last := p.rank - 1
	if p.rank < 2 || p.strides[0][last] != 1 || p.lengths[last] < 4 {
		return -1
	}
	best := last
	for i := range p.rank {
		if s := abs(p.strides[1][i]); s != 0 && s < abs(p.strides[1][best]) && p.lengths[i] >= 4 {
			best = i
		}
	}
	if best == last {
		return -1
	}
	return best
}

// A tiling cuts a copy into tasks: a band of some indices of one axis (down), all of the last axis (along), for one
// index of each of the others.
type tiling struct {
	copying
	outer       plan // the other axes
	down, along int  // lengths
	dstDown     int  // strides; the destination's along is 1
	srcDown     int
	srcAlong    int
	height      int  // of a band: indices of down
	streaming   bool // rows are written past the caches, if they can be
	bands       int  // of one element of outer
}

func tilingOf(p plan, c copying) *tiling {
	i, last := p.sourceAxis(), p.rank-1
	t := &tiling{
		copying: c, outer: p,
		down: p.lengths[i], along: p.lengths[last],
		dstDown: p.strides[0][i], srcDown: p.strides[1][i], srcAlong: p.strides[1][last],
	}
	t.height = tileRow / t.size
	t.streaming = hasAVX2 && c.conv == nil && p.n*c.to >= streamSize
	t.bands = (t.down + t.height - 1) / t.height
	t.outer.removeAxis(last)
	t.outer.removeAxis(i)
	return t
}

// removeAxis removes an axis: its index stays 0.
func (p *plan) removeAxis(axis int) {
	p.n /= p.lengths[axis]
	p.rank--
	copy(p.lengths[axis:], p.lengths[axis+1:])
	for k := range p.operands {
		copy(p.strides[k][axis:], p.strides[k][axis+1:])
	}
}

func (t *tiling) tasks() int { return t.outer.n * t.bands }

// taskBytes returns the bytes that a task reads and writes.
func (t *tiling) taskBytes() int { return min(t.height, t.down) * t.along * (t.size + t.to) }

// run does the tasks lo to hi-1.
func (t *tiling) run(dst, src []byte, lo, hi int) {
	work := workspaces.Get().(*workspace)
	defer workspaces.Put(work)
	to, from := cursorOf(&t.outer, 0), cursorOf(&t.outer, 1)
	for ; lo < hi; lo++ {
		band := lo % t.bands
		to.seek(lo / t.bands)
		from.seek(lo / t.bands)
		first := band * t.height
		t.band(dst, src, to.at+first*t.dstDown, from.at+first*t.srcDown, min(t.height, t.down-first), work)
	}
}

// band copies the n rows of the destination from at, which are columns of the source.
func (t *tiling) band(dst, src []byte, at, from, n int, work *workspace) {
	tile := bytesOf(work[:])[:pitch*tileRow]
	for i := 0; i < t.along; i += tileLen {
		m := min(tileLen, t.along-i)
		t.transpose(tile, src, from+i*t.srcAlong, n, m)
		if t.streaming && t.stream(dst[(at+i)*t.to:], tile, n, m) {
			continue
		}
		for j := range n {
			row := tile[j*pitch*t.size:][:m*t.size]
			to := dst[(at+j*t.dstDown+i)*t.to:][:m*t.to]
			if t.conv != nil {
				t.conv(to, row)
			} else {
				copy(to, row)
			}
		}
	}
}

// stream writes n rows of m elements of the tile to dst past the caches, and reports whether it can.
func (t *tiling) stream(dst, tile []byte, n, m int) bool {
	size, step := m*t.to, t.dstDown*t.to
	if step < 0 || (int(uintptr(unsafe.Pointer(&dst[0])))|step|size)%64 != 0 {
		return false
	}
	_ = dst[(n-1)*step+size-1]
	streamRows(unsafe.Pointer(&dst[0]), unsafe.Pointer(&tile[0]), step, pitch*t.to, size, n)
	return true
}

// transpose copies m rows of n elements of the source to columns of the tile.
func (t *tiling) transpose(tile, src []byte, from, n, m int) {
	rows, columns := t.turn(tile, src[from*t.size:], n, m)
	if rows > 0 {
		t.transposeRest(tile[rows*t.size:], src, from+rows*t.srcAlong, n, m-rows)
		t.transposeRest(tile[columns*pitch*t.size:], src, from+columns*t.srcDown, n-columns, rows)
		return
	}
	t.transposeRest(tile, src, from, n, m)
}

// A turner turns so many rows, and a multiple of so many columns, with vectors: rows of n elements of the source, which
// are step bytes apart, become columns of the tile, whose rows are pitch bytes apart.
type turner struct {
	turn          func(tile, src unsafe.Pointer, pitch, step, n int)
	rows, columns int
}

// turn is transpose of as many rows and columns as vectors do, whose numbers it returns, or 0.
func (t *tiling) turn(tile, src []byte, n, m int) (rows, columns int) {
	if !hasAVX2 || t.size >= len(turners) || t.srcDown != 1 || t.srcAlong < 0 {
		return 0, 0
	}
	u := &turners[t.size]
	rows, columns = m-m%u.rows, n-n%u.columns
	if rows == 0 || columns == 0 {
		return 0, 0
	}
	_ = src[((rows-1)*t.srcAlong+columns)*t.size-1]
	for i := 0; i < rows; i += u.rows {
		u.turn(unsafe.Pointer(&tile[i*t.size]), unsafe.Pointer(&src[i*t.srcAlong*t.size]), pitch*t.size,
			t.srcAlong*t.size, columns)
	}
	return rows, columns
}

// transposeRest is transpose without vectors.
func (t *tiling) transposeRest(tile, src []byte, from, n, m int) {
	switch t.size {
	case 1:
		transposeTile(viewOf[uint8](tile), viewOf[uint8](src), from, t.srcDown, t.srcAlong, n, m)
	case 2:
		transposeTile(viewOf[uint16](tile), viewOf[uint16](src), from, t.srcDown, t.srcAlong, n, m)
	case 4:
		transposeTile(viewOf[uint32](tile), viewOf[uint32](src), from, t.srcDown, t.srcAlong, n, m)
	case 8:
		transposeTile(viewOf[uint64](tile), viewOf[uint64](src), from, t.srcDown, t.srcAlong, n, m)
	default:
		transposeTile(viewOf[[2]uint64](tile), viewOf[[2]uint64](src), from, t.srcDown, t.srcAlong, n, m)
	}
}

func transposeTile[T any](tile, src []T, from, down, along, n, m int) {
	i := 0
	if down == 1 {
		for ; i+8 <= m; i += 8 {
			at := from + i*along
			r0, r1, r2, r3 := src[at:][:n], src[at+along:][:n], src[at+2*along:][:n], src[at+3*along:][:n]
			at += 4 * along
			r4, r5, r6, r7 := src[at:][:n], src[at+along:][:n], src[at+2*along:][:n], src[at+3*along:][:n]
			to := i
			for j := range r0 {
				c := (*[8]T)(tile[to:])
				c[0], c[1], c[2], c[3] = r0[j], r1[j], r2[j], r3[j]
				c[4], c[5], c[6], c[7] = r4[j], r5[j], r6[j], r7[j]
				to += pitch
			}
		}
	}
	for ; i < m; i++ {
		at := from + i*along
		for j := range n {
			tile[j*pitch+i] = src[at]
			at += down
		}
	}
}
