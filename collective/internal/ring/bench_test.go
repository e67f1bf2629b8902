package ring

import (
	"testing"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/dtype"
)

func BenchmarkAllReduce(b *testing.B) {
	for _, c := range []struct {
		name  string
		typ   dtype.DType
		bytes int
	}{
		{"64MiB/float32", dtype.Float32, 64 << 20},
		{"64MiB/bfloat16", dtype.BFloat16, 64 << 20},
		{"4B/float32", dtype.Float32, 4},
	} {
		for _, setup := range setups[:2] {
			b.Run(c.name+"/"+setup.name, func(b *testing.B) {
				nodes := start(b, 2, setup.open, setup.join)
				b.SetBytes(int64(c.bytes))
				each(nodes, func(n *node) {
					a := n.memory(make([]byte, c.bytes))
					call := comm.Call{Kind: comm.AllReduce, Type: c.typ, N: c.bytes / c.typ.Size(), Src: a, Dst: a}
					check(b, n.do(call))
					if n.rank == 0 {
						b.ResetTimer()
					}
					for range b.N {
						check(b, n.Queue(n.stream, call))
					}
					check(b, n.sync())
				})
			})
		}
	}
}
