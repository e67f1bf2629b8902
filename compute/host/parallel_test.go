package host

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
)

func TestEachCoversAllOnce(t *testing.T) {
	for _, procs := range []int{1, 2, 7} {
		b := &Backend{procs: procs}
		for _, n := range []int{0, 1, 2, 63, 64, 65, 1000, 100_003} {
			for _, grain := range []int{0, 1, 10, 1 << 20} {
				counts := make([]atomic.Int32, n)
				b.parallelRanges(n, grain, func(lo, hi int) {
					if hi-lo < grain && hi != n {
						t.Errorf("%d processors, %d elements: [%d, %d) is less than %d", procs, n, lo, hi, grain)
					}
					for i := lo; i < hi; i++ {
						counts[i].Add(1)
					}
				})
				for i := range counts {
					if c := counts[i].Load(); c != 1 {
						t.Fatalf("%d processors, %d elements by %d: element %d was done %d times", procs, n, grain, i, c)
					}
				}
			}
		}
	}
}

// A panic in any part comes out of each, and out of the stream as the error of the work.
func TestPanicsComeOut(t *testing.T) {
	dev := drivertest.OpenDevice(t, "host")
	b := New(dev, Options{Procs: 4})
	s := drivertest.NewStream(t, dev)
	err := b.launch(backend.Queue{Stream: s}, "broken", func(*[maxOperands][]byte) {
		b.parallelRanges(1000, 1, func(lo, hi int) {
			if hi == 1000 {
				panic("the last part is broken")
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "the last part is broken") {
		t.Errorf("Sync: %v", err)
	}
}

// Sums, sums of parts, and whatever else is cut into parts are the same bits with any number of processors, and on the
// simulated device.
func TestProcessorsChangeNothing(t *testing.T) {
	start := seed(t)
	type result struct{ what, data string }
	compute := func(t *testing.T, dev driver.Device, procs int) (results []result) {
		r := rand.New(rand.NewPCG(start, 2))
		g := rig(t, dev, procs)
		array := func(d dtype.DType, shape ...int) backend.Array {
			n, strides := 1, make([]int, len(shape))
			for i := len(shape) - 1; i >= 0; i-- {
				strides[i] = n
				n *= shape[i]
			}
			return backend.Array{Bytes: bytesOf(make([]uint64, (n*d.Size()+7)/8))[:n*d.Size()], DType: d, Shape: shape, Strides: strides}
		}
		do := func(what string, dst backend.Array, err error) {
			if err == nil {
				err = g.Queue.Stream.Sync(t.Context())
			}
			if err != nil {
				t.Fatal(what, err)
			}
			results = append(results, result{what, string(bytes.Clone(dst.Bytes))})
		}
		for _, shape := range [][2]int{{3, 70_000}, {70_000, 3}, {1, 100_001}, {600, 130}} {
			for _, d := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16} {
				x := array(d, shape[0], shape[1])
				do("random", x, g.Backend.Random(g.Queue, x, backend.Random{Distribution: backend.Normal, Seed: r.Uint64(), High: 9}))
				for op := backend.ReduceOp(0); op <= backend.LastReduceOp; op++ {
					if op == backend.Any || op == backend.AllTrue {
						continue
					}
					for _, to := range [][2]int{{1, 1}, {shape[0], 1}, {1, shape[1]}} {
						dst := array(d, to[0], to[1])
						do(fmt.Sprint(op, " of ", d, shape, to), dst, g.Backend.Reduce(g.Queue, op, dst, x))
					}
				}
				for axis := range 2 {
					dst := array(d, shape[0], shape[1])
					do("softmax", dst, g.Backend.Softmax(g.Queue, false, dst, x, axis))
				}
				dst := array(d, shape[0], shape[1])
				do("layer norm", dst, g.Backend.Norm(g.Queue, false, dst, x, 1, nil, nil, 1e-5))
				index := array(dtype.Int64, shape[0], shape[1])
				do("index", index, g.Backend.Random(g.Queue, index, backend.Random{
					Distribution: backend.Integers, Seed: r.Uint64(), HighInt: int64(shape[1]),
				}))
				do("scatter", dst, g.Backend.ScatterAdd(g.Queue, dst, index, x, 1))
			}
		}
		return results
	}
	want := compute(t, drivertest.OpenDevice(t, "host"), 1)
	for name, got := range map[string][]result{
		"2 processors": compute(t, drivertest.OpenDevice(t, "host"), 2), "5 processors": compute(t, drivertest.OpenDevice(t, "host"), 5), "sim": compute(t, openSim(t), 3),
	} {
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %s differs", name, want[i].what)
			}
		}
	}
}
