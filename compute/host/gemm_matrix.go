package host

// A number is a type that products are computed in.
type number interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

// A matrix is an operand of a product: elements of own or, if there is a code, of narrow, which that converts.
type matrix[T number] struct {
	shape
	own    []T
	narrow []uint16
	code   *code[T]
}

// A shape says where element (i, j) of a matrix lies: at + i*rs + j*cs.
type shape struct{ at, rows, cols, rs, cs int }

// A code converts the elements of a type of 16 bits to those of T and, rounding, back. dst is as long as src.
type code[T number] struct {
	widen func(dst []T, src []uint16)
	round func(dst []uint16, src []T)
}

func (m *shape) index(i, j int) int { return m.at + i*m.rs + j*m.cs }

func (m matrix[T]) transposed() matrix[T] {
	m.rows, m.cols, m.rs, m.cs = m.cols, m.rows, m.cs, m.rs
	return m
}

// read returns the elements from at on, as many as temp has, which it may put there.
func (m *matrix[T]) read(at int, temp []T) []T {
	if m.code == nil {
		return m.own[at:][:len(temp)]
	}
	m.code.widen(temp, m.narrow[at:][:len(temp)])
	return temp
}

// gather reads elements that lie stride apart into dst.
func (m *matrix[T]) gather(dst []T, at, stride int) {
	if stride == 1 {
		copy(dst, m.read(at, dst))
		return
	}
	for i := range dst {
		dst[i] = m.read(at, dst[i:i+1])[0]
		at += stride
	}
}

// write puts src at elements that lie stride apart.
func (m *matrix[T]) write(at, stride int, src []T) {
	switch {
	case m.code != nil && stride == 1:
		m.code.round(m.narrow[at:][:len(src)], src)
	case m.code != nil:
		for i := range src {
			m.code.round(m.narrow[at:at+1], src[i:i+1])
			at += stride
		}
	case stride == 1:
		copy(m.own[at:][:len(src)], src)
	default:
		for _, v := range src {
			m.own[at] = v
			at += stride
		}
	}
}

// pack puts n rows from i on, depth elements of each from p on, into dst in panels of w rows: first the w elements at p
// of the first panel, then those at p+1, and so on. What the last panel lacks of rows is zeros.
func (m *matrix[T]) pack(dst []T, w, i, n, p, depth int) {
	if m.code == nil {
		packPanels(dst, w, m.own, m.index(i, p), m.rs, m.cs, n, depth)
		return
	}
	wide := takeScratch[T](n * depth) // along the axis that is contiguous, if one is
	defer wide.free()
	if m.rs == 1 {
		for q := range depth {
			m.gather(wide.of[q*n:][:n], m.index(i, p+q), 1)
		}
		packPanels(dst, w, wide.of, 0, 1, n, n, depth)
		return
	}
	for r := range n {
		m.gather(wide.of[r*depth:][:depth], m.index(i+r, p), m.cs)
	}
	packPanels(dst, w, wide.of, 0, depth, 1, n, depth)
}

// packPanels packs n rows that begin at src[at] and lie across apart, their elements along apart.
func packPanels[T number](dst []T, w int, src []T, at, across, along, n, depth int) {
	for ; n > 0; n -= w {
		panel := dst[:w*depth]
		if n < w {
			clear(panel)
		}
		packPanel(panel, w, src, at, across, along, min(n, w), depth)
		dst, at = dst[w*depth:], at+w*across
	}
}

func packPanel[T number](dst []T, w int, src []T, at, across, along, n, depth int) {
	if across == 1 {
		for p := range depth {
			copy(dst[p*w:][:n], src[at+p*along:][:n])
		}
		return
	}
	r := 0
	if along == 1 {
		for ; r+4 <= n; r += 4 {
			interleave(dst[r:], w, src[at+r*across:][:depth], src[at+(r+1)*across:][:depth],
				src[at+(r+2)*across:][:depth], src[at+(r+3)*across:][:depth])
		}
	}
	for ; r < n; r++ {
		to, from := r, at+r*across
		for range depth {
			dst[to] = src[from]
			to, from = to+w, from+along
		}
	}
}

// interleave puts element p of each of four rows at p*w.
func interleave[T number](dst []T, w int, r0, r1, r2, r3 []T) {
	r1, r2, r3 = r1[:len(r0)], r2[:len(r0)], r3[:len(r0)]
	at := 0
	for p := range r0 {
		d := dst[at : at+4 : at+4]
		d[0], d[1], d[2], d[3] = r0[p], r1[p], r2[p], r3[p]
		at += w
	}
}
