package host

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// Copies from columns to rows give each element to its place, for all sizes of elements, lengths that are no multiples
// of what vectors turn, views with gaps, axes that go backward, and results large enough to go past the caches.
func TestTransposedCopies(t *testing.T) {
	types := []dtype.DType{dtype.Uint8, dtype.Int16, dtype.Float32, dtype.Int64, dtype.Complex128}
	for _, d := range types {
		for _, c := range []struct{ rows, columns, gap, step int }{
			{64, 128, 0, 1},
			{71, 133, 0, 1},
			{16, 64, 5, 1},
			{130, 257, 3, -1},
			{4, 4, 0, 1},
			{1088, 4160, 0, 1},
			{1087, 4099, 0, 1},
		} {
			t.Run(fmt.Sprintf("%v %dx%d gap %d step %d", d, c.rows, c.columns, c.gap, c.step), func(t *testing.T) {
				dev := drivertest.OpenDevice(t, "host")
				q, pitch := backend.Queue{Stream: drivertest.NewStream(t, dev)}, c.rows+c.gap
				memory := func(shape ...int) backend.Array {
					size := int64(shape[0] * shape[1] * d.Size())
					p := drivertest.Alloc(t, dev, size)
					bytes, err := dev.Visible().Bytes(p, size)
					testkit.Must(t, err)
					return backend.Array{Ptr: p, Bytes: bytes, DType: d, Shape: shape, Strides: []int{shape[1], 1}}
				}
				src, dst := memory(c.columns, pitch), memory(c.rows, c.columns)
				rng := rand.NewChaCha8([32]byte{byte(d)})
				_, _ = rng.Read(src.Bytes)
				from := src
				from.Shape, from.Strides = dst.Shape, []int{1, pitch * c.step}
				if c.step < 0 {
					from.Offset = (c.columns - 1) * pitch
				}
				testkit.Must(t, New(dev, Options{Procs: 2}).Copy(q, dst, from))
				testkit.Must(t, q.Stream.Sync(t.Context()))
				for i := range c.rows {
					for j := range c.columns {
						at := (from.Offset + i + j*pitch*c.step) * d.Size()
						want, got := src.Bytes[at:at+d.Size()], dst.Bytes[(i*c.columns+j)*d.Size():][:d.Size()]
						if string(want) != string(got) {
							t.Fatalf("element %d, %d is % x, want % x", i, j, got, want)
						}
					}
				}
			})
		}
	}
}
