package host

import (
	"sync/atomic"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// MatMul computes products of matrices: see backend.Backend. How depends on types, shapes and strides alone:
//
//   - with a vector, or very small: gemm_vector.go, at the speed of memory;
//   - float32 and float64, where OpenBLAS is installed, Options.NoBLAS is not set and the matrices have contiguous rows
//     or columns: blas.go;
//   - all else: gemm.go, with a microkernel in assembly for floats on amd64, and one in Go for the rest.
//
// So results do not depend on how many processors there are; those of OpenBLAS may depend on its number of threads.
// Binary16 and bfloat16 are converted to float32 as they are packed; sums are float32, rounded once at the end.
// Integers wrap.
func (b *Backend) MatMul(q backend.Queue, dst, x, y backend.Array) error {
	switch dst.DType {
	case dtype.Float32:
		return matmul[float32](b, q, dst, x, y, nil)
	case dtype.Float64:
		return matmul[float64](b, q, dst, x, y, nil)
	case dtype.Float16:
		return matmul(b, q, dst, x, y, &code[float32]{vecWidenF16, vecRoundF16})
	case dtype.BFloat16:
		return matmul(b, q, dst, x, y, &code[float32]{vecWidenBF16, vecRoundBF16})
	case dtype.Int8:
		return matmul[int8](b, q, dst, x, y, nil)
	case dtype.Int16:
		return matmul[int16](b, q, dst, x, y, nil)
	case dtype.Int32:
		return matmul[int32](b, q, dst, x, y, nil)
	case dtype.Int64:
		return matmul[int64](b, q, dst, x, y, nil)
	case dtype.Uint8:
		return matmul[uint8](b, q, dst, x, y, nil)
	case dtype.Uint16:
		return matmul[uint16](b, q, dst, x, y, nil)
	case dtype.Uint32:
		return matmul[uint32](b, q, dst, x, y, nil)
	case dtype.Uint64:
		return matmul[uint64](b, q, dst, x, y, nil)
	}
	return unsupportedCall("matmul", dst.DType)
}

func matmul[T number](b *Backend, q backend.Queue, dst, x, y backend.Array, narrow *code[T]) error {
	c, left, right := out(dst), in(x), in(y)
	if c.length == 0 {
		return nil
	}
	batches := batchesOf(&c, &left, &right)
	return b.launch(q, "matmul", func(mem *[maxOperands][]byte) {
		g := product[T]{
			kernels: best[T](),
			c:       matrixOf(&c, mem[0], narrow), a: matrixOf(&left, mem[1], narrow),
			b:     matrixOf(&right, mem[2], narrow),
			procs: b.procs, blas: !b.noBLAS && narrow == nil && blasFunction[T]() != 0,
		}
		batches.fold(&g.c.shape, &g.a.shape, &g.b.shape)
		products(b, &g, &batches)
	}, c, left, right)
}

// matrixOf returns the last two axes of an operand.
func matrixOf[T number](o *array, mem []byte, narrow *code[T]) matrix[T] {
	i := o.rank - 2
	m := matrix[T]{code: narrow, shape: shape{o.first, o.shape[i], o.shape[i+1], o.strides[i], o.strides[i+1]}}
	if narrow != nil {
		m.narrow = viewOf[uint16](mem)
	} else {
		m.own = viewOf[T](mem)
	}
	return m
}

// batches are the axes before the last two: each a length, and a stride in c, a and b.
type batches struct {
	n    int // products
	axes []batchAxis
}

type batchAxis struct {
	length  int
	strides [3]int
}

func batchesOf(c, a, b *array) batches {
	s := batches{n: 1}
	for i := range c.rank - 2 {
		if c.shape[i] > 1 {
			s.axes = append(s.axes, batchAxis{c.shape[i], [3]int{c.strides[i], a.strides[i], b.strides[i]}})
			s.n *= c.shape[i]
		}
	}
	return s
}

// fold makes rows of the last batch axes where all batches of them share b, and the rows of a and c go on from one to
// the next: one large product for many small ones.
func (s *batches) fold(c, a, b *shape) {
	for len(s.axes) > 0 {
		axis := s.axes[len(s.axes)-1]
		if c.rows == 1 {
			c.rs, a.rs = axis.strides[0], axis.strides[1]
		}
		if axis.strides[2] != 0 || axis.strides[0] != c.rows*c.rs || axis.strides[1] != a.rows*a.rs {
			return
		}
		c.rows, a.rows = c.rows*axis.length, a.rows*axis.length
		s.n /= axis.length
		s.axes = s.axes[:len(s.axes)-1]
	}
}

// at returns where the matrices of product i begin, from where those of the first do.
func (s *batches) at(i int) (c, a, b int) {
	for k := len(s.axes) - 1; k >= 0; k-- {
		axis := &s.axes[k]
		j := i % axis.length
		i /= axis.length
		c, a, b = c+j*axis.strides[0], a+j*axis.strides[1], b+j*axis.strides[2]
	}
	return c, a, b
}

// products computes all batches: small products side by side, large ones one after the other.
func products[T number](b *Backend, g *product[T], s *batches) {
	work := max(1, g.c.rows*g.c.cols*g.a.cols)
	compute := func(p *product[T], i int, spread func(...stage)) {
		*p = *g
		p.spread = spread
		c, left, right := s.at(i)
		p.c.at, p.a.at, p.b.at = p.c.at+c, p.a.at+left, p.b.at+right
		p.compute()
	}
	if work <= g.grain || s.n >= 4*b.procs && !g.blas { // OpenBLAS has its own threads for the large ones
		b.parallelRanges(s.n, max(1, g.grain/work), func(lo, hi int) {
			p := new(product[T])
			for i := lo; i < hi; i++ {
				compute(p, i, sequentially)
			}
		})
		return
	}
	p := new(product[T])
	for i := range s.n {
		compute(p, i, b.inStages)
	}
}

// tinyWork is the most multiplications for which it does not pay to pack anything.
const tinyWork = 1 << 11

// compute computes one product.
func (g *product[T]) compute() {
	switch {
	case g.a.cols == 0:
		zeros := make([]T, g.c.cols)
		for i := range g.c.rows {
			g.c.write(g.c.index(i, 0), g.c.cs, zeros)
		}
		return
	case g.c.rows == 1, g.c.cols > 1 && g.c.cs != 1 && g.c.rs == 1:
		g.a, g.b, g.c = g.b.transposed(), g.a.transposed(), g.c.transposed()
	}
	switch {
	case g.c.cols == 1:
		g.vector()
	case g.c.rows*g.c.cols*g.a.cols <= tinyWork:
		g.tiny()
	case g.blas && blas(&g.a, &g.b, &g.c):
	default:
		g.tiled()
	}
}

// inStages does stages on as many processors as the backend has. Their tasks are handed out one by one: they are long,
// and not all alike. A stage starts when the previous one is done.
func (b *Backend) inStages(stages ...stage) {
	type progress struct {
		next, done atomic.Int64
		over       chan struct{}
	}
	work, most := make([]progress, len(stages)), 0
	for i := range stages {
		work[i].over = make(chan struct{})
		most = max(most, stages[i].n)
	}
	b.parallelTasks(min(most, b.procs), func(int) {
		for i, s := range stages {
			p := &work[i]
			do := func(task int) {
				defer func() { // also if it panics: others wait for it
					if p.done.Add(1) == int64(s.n) {
						close(p.over)
					}
				}()
				s.task(task)
			}
			for task := p.next.Add(1) - 1; task < int64(s.n); task = p.next.Add(1) - 1 {
				do(int(task))
			}
			if i+1 < len(stages) {
				<-p.over
			}
		}
	})
}

// sequentially does stages on the caller's processor.
func sequentially(stages ...stage) {
	for _, s := range stages {
		for i := range s.n {
			s.task(i)
		}
	}
}
