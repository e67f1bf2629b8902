package backendtest

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// anyResult takes whatever it finds.
func anyResult(int, []byte) string { return "" }

// checkUnsupported asks for what no backend must know: it is refused as unsupported, or done, and nothing else is
// touched.
func checkUnsupported(s *suite) {
	b := s.rig.Backend
	shape := []int{2, 5}
	storage := []dtype.DType{dtype.Float8E5M2, dtype.Float8E4M3FN, dtype.Complex64, dtype.Complex128}
	for _, d := range storage {
		s.refusal("unary", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Unary(q, backend.Neg, dst, x)
		})
		s.refusal("binary", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Binary(q, backend.Add, dst, x, x)
		})
		s.refusal("softmax", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Softmax(q, false, dst, x, 1)
		})
		s.refusal("norm", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Norm(q, true, dst, x, 1, nil, nil, 1e-5)
		})
		s.refusal("sort", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Sort(q, false, &dst, nil, x, 0)
		})
		s.refusal("topk", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.TopK(q, false, &dst, nil, x, 0)
		})
		s.refusal("random", d, func(q backend.Queue, dst, _ backend.Array) error {
			return b.Random(q, dst, backend.Random{High: 1})
		})
		t := s.trial("reduce of %v", d)
		x := t.input("x", d, shape, s.anything(d))
		dst := t.output("dst", d, []int{2, 1}, anyResult)
		t.unsupported(func(q backend.Queue) error { return b.Reduce(q, backend.Sum, dst.array, x.array) })

		t = s.trial("matmul of %v", d)
		x = t.input("x", d, []int{3, 3}, s.anything(d))
		dst = t.output("dst", d, []int{3, 3}, anyResult)
		t.unsupported(func(q backend.Queue) error { return b.MatMul(q, dst.array, x.array, x.array) })
	}
	for _, d := range integralTypes {
		s.refusal("exp", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Unary(q, backend.Exp, dst, x)
		})
		s.refusal("div", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Binary(q, backend.Div, dst, x, x)
		})
		s.refusal("softmax", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Softmax(q, true, dst, x, 0)
		})
	}
	for _, d := range floatTypes {
		s.refusal("and", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Binary(q, backend.And, dst, x, x)
		})
		s.refusal("invert", d, func(q backend.Queue, dst, x backend.Array) error {
			return b.Unary(q, backend.Invert, dst, x)
		})
	}
}

// refusal tries a call with a result like x.
func (s *suite) refusal(name string, d dtype.DType, call func(q backend.Queue, dst, x backend.Array) error) {
	s.Helper()
	t := s.trial("%s of %v, which need not be known", name, d)
	shape := []int{2, 5}
	x := t.input("x", d, shape, s.anything(d))
	dst := t.output("dst", d, shape, anyResult)
	t.unsupported(func(q backend.Queue) error { return call(q, dst.array, x.array) })
}
