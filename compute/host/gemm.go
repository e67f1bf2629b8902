package host

import (
	"math/bits"
	"sync"
	"unsafe"
)

// The tiled product of matrices, after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM
// TOMS 34(3), 2008), and Van Zee and van de Geijn, "BLIS" (ACM TOMS 41(3), 2015).
//
// C is computed in regions of about regionRows x regionCols, each of which is finished before the next. For every depth
// of up to kc along k, the rows of A and the columns of B that the region needs are packed: A in panels of mr rows, B
// in panels of nr columns, a panel holding the elements of one k together, the last one padded with zeros. Then the
// region is cut into tasks of some panels of A (which stay in the second-level cache) by some of B (each of which stays
// in the first), and the microkernel computes mr x nr elements of C at a time, in registers. Packing and multiplying
// are stages, each of which is spread over the processors.
//
// Packing is what makes any strides, and types that are converted to T on the way, cost little: each element is packed
// once for about a thousand uses. A destination that the microkernel cannot write (columns apart, or another type) gets
// a region of scratch, and every element of it is stored once, after all of k.
//
// The sum over k is split by k and kc alone, so that results do not depend on how many processors there are.
//
// It does not do alpha and beta, complex numbers, or matrices that are symmetric or triangular.

// A microkernel computes C = A*B, or C += A*B if add, for a panel of mr rows and one of nr columns, both k deep. The
// rows of C are ldc elements apart.
type microkernel[T number] struct {
	mr, nr int
	kc     int // the depth at which a panel of B is about half of a first-level cache of 32 KiB
	run    func(k int, a, b, c *T, ldc int, add bool)
}

// The multiples of mr and nr above these are taken.
const (
	regionRows = 1024
	regionCols = 2048
	taskRows   = 96
	taskCols   = 512
	unitSize   = 128 // rows or columns that are packed at once
)

// A product is C = A*B, of matrices that are not empty.
type product[T number] struct {
	kernels[T]
	a, b, c matrix[T]
	spread  func(...stage) // does the stages, one after the other
	procs   int            // how many processors that uses
	blas    bool           // whether there is an OpenBLAS that may be used
}

// A stage is tasks that may be done side by side: task(i) for all 0 <= i < n.
type stage struct {
	n    int
	task func(i int)
}

func (g *product[T]) tiled() {
	m, n, k := g.c.rows, g.c.cols, g.a.cols
	rows := min(roundUp(regionRows, g.tile.mr), roundUp(m, g.tile.mr))
	cols := min(roundUp(regionCols, g.tile.nr), roundUp(n, g.tile.nr))
	depth := evenly(k, g.tile.kc)
	panels := takeScratch[T](rows*depth + cols*depth)
	defer panels.free()
	direct := g.c.code == nil && g.c.cs == 1 && (g.c.rs >= n || m == 1)
	var held scratch[T]
	if !direct {
		held = takeScratch[T](rows * cols)
		defer held.free()
	}
	for j := 0; j < n; j += cols {
		for i := 0; i < m; i += rows {
			l := region[T]{
				product: g, i: i, j: j, m: min(rows, m-i), n: min(cols, n-j),
				packedA: panels.of[:rows*depth], packedB: panels.of[rows*depth:], out: held.of, ldc: cols,
			}
			if direct {
				l.out, l.ldc = g.c.own[g.c.index(i, j):], g.c.rs
			}
			var stages []stage
			for p := 0; p < k; p += depth {
				l.p, l.depth = p, min(depth, k-p)
				stages = append(stages, l.pack(), l.multiply())
			}
			if !direct {
				stages = append(stages, l.store())
			}
			g.spread(stages...)
		}
	}
}

// A region is part of C, m x n elements from (i, j), and one depth of what it is computed from.
type region[T number] struct {
	*product[T]
	i, j, m, n       int
	p, depth         int
	packedA, packedB []T
	out              []T // where the microkernel writes, its rows ldc apart
	ldc              int
}

func (l region[T]) pack() stage {
	mr, nr := l.tile.mr, l.tile.nr
	unitA, unitB := roundUp(unitSize, mr), roundUp(unitSize, nr)
	unitsA, unitsB := count(l.m, unitA), count(l.n, unitB)
	columns := l.b.transposed()
	return stage{unitsA + unitsB, func(u int) {
		if u < unitsA {
			at := u * unitA
			l.a.pack(l.packedA[at*l.depth:], mr, l.i+at, min(unitA, l.m-at), l.p, l.depth)
			return
		}
		at := (u - unitsA) * unitB
		columns.pack(l.packedB[at*l.depth:], nr, l.j+at, min(unitB, l.n-at), l.p, l.depth)
	}}
}

func (l region[T]) multiply() stage {
	rows, cols := roundUp(taskRows, l.tile.mr), roundUp(taskCols, l.tile.nr)
	down := count(l.m, rows)
	for cols > 4*l.tile.nr && down*count(l.n, cols) < 4*l.procs {
		cols = roundUp(cols/2, l.tile.nr)
	}
	return stage{down * count(l.n, cols), func(t int) {
		i, j := t%down*rows, t/down*cols
		l.task(i, min(i+rows, l.m), j, min(j+cols, l.n))
	}}
}

// task computes rows i to m and columns j to n of the region.
func (l *region[T]) task(i, m, j, n int) {
	mr, nr, add := l.tile.mr, l.tile.nr, l.p > 0
	edge := takeScratch[T](mr * nr)
	defer edge.free()
	for jr := j; jr < n; jr += nr {
		b := &l.packedB[jr*l.depth]
		for ir := i; ir < m; ir += mr {
			a, c := &l.packedA[ir*l.depth], l.out[ir*l.ldc+jr:]
			if ir+mr <= m && jr+nr <= n {
				l.tile.run(l.depth, a, b, &c[0], l.ldc, add)
				continue
			}
			l.tile.run(l.depth, a, b, &edge.of[0], nr, false)
			accumulate(c, l.ldc, edge.of, nr, min(mr, m-ir), min(nr, n-jr), add)
		}
	}
}

// accumulate sets or adds m x n elements of an edge to c.
func accumulate[T number](c []T, ldc int, edge []T, lde, m, n int, add bool) {
	for i := range m {
		row, from := c[i*ldc:][:n], edge[i*lde:][:n]
		if !add {
			copy(row, from)
			continue
		}
		for j, v := range from {
			row[j] += v
		}
	}
}

// store puts the region where C lies.
func (l region[T]) store() stage {
	const rows = 16
	return stage{count(l.m, rows), func(u int) {
		for i := u * rows; i < min(u*rows+rows, l.m); i++ {
			l.c.write(l.c.index(l.i+i, l.j), l.c.cs, l.out[i*l.ldc:][:l.n])
		}
	}}
}

// evenly returns the size of equal parts of n, each at most most.
func evenly(n, most int) int { return count(n, count(n, most)) }

// count returns how many parts of a size make n.
func count(n, size int) int { return (n + size - 1) / size }

func roundUp(n, to int) int { return count(n, to) * to }

// Scratch is memory of Go's heap: elements with anything in them. It comes from pools that the garbage collector
// empties, one for each power of two; a product under way holds a few megabytes for its panels.
type scratch[T number] struct {
	of    []T
	from  *[][64]byte
	class int
}

func takeScratch[T number](n int) scratch[T] {
	size := (n*int(unsafe.Sizeof(*new(T))) + 63) / 64
	class := bits.Len(uint(max(size, 1) - 1))
	held, _ := scratchPools[class].Get().(*[][64]byte)
	if held == nil {
		fresh := make([][64]byte, 1<<class)
		held = &fresh
	}
	return scratch[T]{unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(*held))), n), held, class}
}

func (s scratch[T]) free() { scratchPools[s.class].Put(s.from) }

var scratchPools [64]sync.Pool
