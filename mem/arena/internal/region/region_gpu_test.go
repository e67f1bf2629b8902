//go:build gpu

package region

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func openGPU(t testing.TB) (driver.Device, driver.Stream) {
	t.Helper()
	dev := drivertest.OpenDevice(t, "cuda:0")
	s := drivertest.NewStream(t, dev)
	return dev, s
}

// TestGPUMoves moves on a real device by its compiled kernel, by copies, and by mapping pages elsewhere, and compares
// every byte of the runs.
func TestGPUMoves(t *testing.T) {
	dev, s := openGPU(t)
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	const size = 96 << 20
	for _, way := range []struct {
		name      string
		dev       driver.Device
		page      int64
		remapFrom int64
	}{
		{"kernel", dev, 0, remapFrom},
		{"copies", noKernels{dev}, 0, remapFrom},
		{"pages", dev, 2 << 20, 1 << 62},
		{"remapped", dev, 2 << 20, 0},
	} {
		t.Run(way.name, func(t *testing.T) {
			r, err := Open(way.dev, Options{Size: size, Page: way.page, Bounce: 1 << 20})
			testkit.Must(t, err)
			defer func() { testkit.Must(t, r.Close()) }()
			r.remapFrom = way.remapFrom
			testkit.Must(t, r.Extend(r.Base()+size))
			model := make([]byte, size)
			fill(rng, model)
			var lists [][]Move
			for _, shift := range []int64{512, 1024, 16 << 10, 32<<10 - 512, 32 << 10, 64 << 10, 1 << 20, 2 << 20, 33 << 20, 48 << 20} {
				lists = append(lists, []Move{{r.Base(), r.Base() + driver.Pointer(shift), size - shift}})
			}
			for _, runs := range []int{2, 60, 1000, 20000, 70000} {
				lists = append(lists, randomMoves(rng, r.Base(), size, runs), randomMoves(rng, r.Base(), size, runs))
			}
			if way.page > 0 {
				for range 10 {
					lists = append(lists, pagedMoves(rng, r.Base(), size, way.page))
				}
			}
			for i, moves := range lists {
				testkit.Must(t, s.CopyIn(r.Base(), model))
				n, err := r.Move(s, moves)
				testkit.Must(t, err)
				if n != len(moves) {
					t.Fatalf("list %d: %d of %d moves done", i, n, len(moves))
				}
				slideModel(model, r.Base(), moves)
				got := make([]byte, size)
				testkit.Must(t, s.CopyOut(got, r.Base()))
				for j, m := range moves {
					at := m.To - r.Base()
					if !bytes.Equal(got[at:at+driver.Pointer(m.Size)], model[at:at+driver.Pointer(m.Size)]) {
						t.Fatalf("list %d of %d moves: run %d, %d bytes down by %d, is not what it was", i, len(moves), j, m.Size, m.From-m.To)
					}
				}
				model = got
				if i%4 == 3 {
					fill(rng, model)
				}
			}
		})
	}
}

// BenchmarkGPUMove is 8 GiB moved, in bytes of contents a second, beside the device's own copy of as many. Each time is
// waited for.
func BenchmarkGPUMove(b *testing.B) {
	dev, s := openGPU(b)
	const total = 8 << 30
	sync := func(b *testing.B) { testkit.Must(b, s.Sync(context.Background())) }
	p := drivertest.Alloc(b, dev, 2*total)
	repeat := func(b *testing.B, size int64, f func()) {
		f()
		sync(b)
		b.SetBytes(size)
		for b.Loop() {
			f()
			sync(b)
		}
	}
	b.Run("copy/8GiB", func(b *testing.B) {
		repeat(b, total, func() { testkit.Must(b, s.Copy(p, p+total, total)) })
	})
	for _, size := range []int64{1 << 20, 16 << 20, 256 << 20, 1600 << 20} {
		b.Run(fmt.Sprintf("copy/%dMiB", size>>20), func(b *testing.B) {
			repeat(b, size, func() { testkit.Must(b, s.Copy(p, p+total, size)) })
		})
	}
	testkit.Must(b, dev.Free(p))

	open := func(b *testing.B, o Options) *Region {
		r, err := Open(dev, o)
		testkit.Must(b, err)
		b.Cleanup(func() { testkit.Must(b, r.Close()) })
		testkit.Must(b, r.Extend(r.Base()+driver.Pointer(r.Size())))
		testkit.Must(b, s.Fill(r.Base(), 7, r.Size()))
		return r
	}
	move := func(b *testing.B, r *Region, moves []Move) {
		var size int64
		for _, m := range moves {
			size += m.Size
		}
		var busy time.Duration
		repeat(b, size, func() {
			began := time.Now()
			_, err := r.Move(s, moves)
			busy = time.Since(began)
			testkit.Must(b, err)
		})
		b.ReportMetric(float64(busy.Nanoseconds()), "call-ns")
	}
	for _, size := range []int64{1 << 20, 16 << 20, 256 << 20, total} {
		for _, shift := range []int64{512, 64 << 10, 1 << 20, 32 << 20, size} {
			if shift > size || size < total && shift != 512 && shift != size {
				continue
			}
			b.Run(fmt.Sprintf("move/%dMiB/shift%d", size>>20, shift), func(b *testing.B) {
				r := open(b, Options{Size: size + shift})
				move(b, r, []Move{{r.Base(), r.Base() + driver.Pointer(shift), size}})
			})
		}
	}
	for _, runs := range []struct {
		n      int
		grains int64
	}{
		{100_000, 8},
		{100_000, 32},
		{512 << 10, 32}, // this and the following are 8 GiB
		{128 << 10, 128},
		{100_000, 167},
		{10_000, 1677},
		{1000, 16777},
	} {
		b.Run(fmt.Sprintf("runs/%dx%d", runs.n, runs.grains*Grain), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			r := open(b, Options{Size: int64(runs.n) * (2*runs.grains + 2) * Grain})
			move(b, r, compaction(rng, r.Base(), runs.n, runs.grains))
		})
	}
	b.Run("copies/8GiB/shift512", func(b *testing.B) {
		r := open(b, Options{Size: total + 512})
		kernel := r.kernel
		r.kernel = nil
		move(b, r, []Move{{r.Base(), r.Base() + 512, total}})
		r.kernel = kernel
	})
	for _, page := range []int64{2 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20} {
		for _, from := range []int64{0, 1 << 62} {
			name := map[int64]string{0: "remap", 1 << 62: "copy"}[from]
			for _, size := range []int64{page, total} {
				b.Run(fmt.Sprintf("pages/%dMiB/%s/%dMiB", page>>20, name, size>>20), func(b *testing.B) {
					r := open(b, Options{Size: total + page, Page: page})
					r.remapFrom = from
					move(b, r, []Move{{r.Base(), r.Base() + driver.Pointer(page), size}})
				})
			}
		}
	}
}
