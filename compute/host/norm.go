package host

import (
	"math"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// Norm normalizes rows, each of the elements of the last n axes. The mean and the variance are computed one after the
// other, in float64.
func (b *Backend) Norm(
	q backend.Queue, rms bool, dst, x backend.Array, n int, weight, bias *backend.Array, eps float64,
) error {
	name := "layer_norm"
	if rms {
		name = "rms_norm"
	}
	switch computed(x.DType) {
	case dtype.Float32:
		return norm[float32](b, q, name, rms, dst, x, n, weight, bias, eps)
	case dtype.Float64:
		return norm[float64](b, q, name, rms, dst, x, n, weight, bias, eps)
	}
	return unsupportedCall(name, x.DType)
}

func norm[T float](
	b *Backend, q backend.Queue, name string, rms bool, dst, x backend.Array, n int, weight, bias *backend.Array,
	eps float64,
) error {
	lead := len(x.Shape) - n
	operands := []array{out(dst), in(x)}
	for _, a := range []*backend.Array{weight, bias} {
		if a != nil {
			operands = append(operands, in(backend.Array{
				Ptr: a.Ptr, Bytes: a.Bytes, DType: a.DType, Offset: a.Offset,
				Shape: x.Shape, Strides: append(make([]int, lead, lead+n), a.Strides...),
			}))
		}
	}
	p := planOf(x.Shape, nil, operands...)
	if p.n == 0 {
		return nil
	}
	length := 1
	for _, l := range x.Shape[lead:] {
		length *= l
	}
	return b.launch(q, name, func(mem *[maxOperands][]byte) {
		b.parallelRanges(p.n/length, grainBytes/(length*2*moderate), func(lo, hi int) {
			work := workspaces.Get().(*workspace)
			defer workspaces.Put(work)
			d := computed(x.DType)
			t := normTask[T]{dst: writerOf(&p, 0, mem[0], x.DType, d, work), rms: rms, eps: eps}
			t.x = readerOf(&p, 1, mem[1], x.DType, d, work)
			for k := 2; k < len(operands); k++ {
				r := readerOf(&p, k, mem[k], x.DType, d, work)
				if k == 2 && weight != nil {
					t.weight = &r
				} else {
					t.bias = &r
				}
			}
			for ; lo < hi; lo++ {
				t.row(lo*length, length)
			}
		})
	}, operands...)
}

type normTask[T float] struct {
	dst          writer
	x            reader
	weight, bias *reader // or nil
	rms          bool
	eps          float64
}

// row normalizes the n elements from lo.
func (t *normTask[T]) row(lo, n int) {
	mean, squares := 0.0, 0.0
	if !t.rms {
		for at := 0; at < n; {
			m := t.length(lo+at, lo+n)
			mean = sumOf(mean, viewOf[T](t.x.block(lo+at, m)), 0)
			at += m
		}
		mean /= float64(n)
	}
	for at := 0; at < n; {
		m := t.length(lo+at, lo+n)
		squares = deviations(squares, mean, viewOf[T](t.x.block(lo+at, m)))
		at += m
	}
	scale := 1 / math.Sqrt(squares/float64(n)+t.eps)
	for at := 0; at < n; {
		m := t.length(lo+at, lo+n)
		x := viewOf[T](t.x.block(lo+at, m))
		to := viewOf[T](t.dst.block(lo+at, m))[:len(x)]
		var weight, bias []T
		if t.weight != nil {
			weight = viewOf[T](t.weight.block(lo+at, m))[:len(x)]
		}
		if t.bias != nil {
			bias = viewOf[T](t.bias.block(lo+at, m))[:len(x)]
		}
		normalize(to, x, weight, bias, mean, scale)
		t.dst.commit()
		at += m
	}
}

func (t *normTask[T]) length(lo, hi int) int { return t.x.p.length(lo, hi, true) }

// deviations adds the squares of how far elements are from the mean to sum.
func deviations[T float](sum, mean float64, x []T) float64 {
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4; x = x[4:] {
		d0, d1, d2, d3 := float64(x[0])-mean, float64(x[1])-mean, float64(x[2])-mean, float64(x[3])-mean
		s0 += d0 * d0
		s1 += d1 * d1
		s2 += d2 * d2
		s3 += d3 * d3
	}
	s0 += s1 + (s2 + s3)
	for _, v := range x {
		d := float64(v) - mean
		s0 += d * d
	}
	return sum + s0
}

func normalize[T float](to, x, weight, bias []T, mean, scale float64) {
	switch {
	case weight != nil && bias != nil:
		for i, v := range x {
			to[i] = T((float64(v)-mean)*scale*float64(weight[i]) + float64(bias[i]))
		}
	case weight != nil:
		for i, v := range x {
			to[i] = T((float64(v) - mean) * scale * float64(weight[i]))
		}
	case bias != nil:
		for i, v := range x {
			to[i] = T((float64(v)-mean)*scale + float64(bias[i]))
		}
	default:
		for i, v := range x {
			to[i] = T((float64(v) - mean) * scale)
		}
	}
}
