package host

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// Where moves elements of x or y, of any type but complex.
func (b *Backend) Where(q backend.Queue, dst, cond, x, y backend.Array) error {
	if dst.DType.IsComplex() {
		return unsupportedCall("where", dst.DType)
	}
	var run loop
	var moved dtype.DType
	switch dst.DType.Size() {
	case 1:
		run, moved = choose[uint8], dtype.Uint8
	case 2:
		run, moved = choose[uint16], dtype.Uint16
	case 4:
		run, moved = choose[uint32], dtype.Uint32
	default:
		run, moved = choose[uint64], dtype.Uint64
	}
	dst.DType, x.DType, y.DType = moved, moved, moved
	return b.elementwise(q, "where", run, 0, dst, cond, x, y)
}

func choose[T integer](dst []byte, in *[maxOperands - 1][]byte) {
	to := viewOf[T](dst)
	cond, x, y := in[0][:len(to)], viewOf[T](in[1])[:len(to)], viewOf[T](in[2])[:len(to)]
	for i := range to {
		v := y[i]
		if cond[i] != 0 {
			v = x[i]
		}
		to[i] = v
	}
}
