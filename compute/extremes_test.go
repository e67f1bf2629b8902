package compute_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
)

// limited returns a place on the host with a limit of that many bytes.
func limited(t *testing.T, bytes int64) *tensor.Place {
	t.Helper()
	dev := smallHost(t)
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	b, err := compute.NewBackend(dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.Close(), a.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return tensor.NewPlace(tensor.Config{Device: dev, Allocator: layer.NewLimiter(a, bytes), Backend: b})
}

// failed returns the error of a call that should return no tensor.
func failed(x *tensor.Tensor, err error) error {
	if x.Defined() {
		return nil
	}
	return err
}

// Views of more elements than memory can hold cost nothing. An operation that would have to store all of them returns
// an out-of-memory error.
func TestViewsLargerThanMemory(t *testing.T) {
	for name, dev := range map[string]driver.Device{"host": smallHost(t), "sim": simulated(0, sim.AtOnce, 0)} {
		p := placeOn(t, dev).Scope()
		defer p.Close()
		one := slice(t, p, []uint8{1})
		big := tensor.Must(one.Expand(1 << 33))
		if e, err := big.At(1<<33 - 1); err != nil || e.Int64() != 1 {
			t.Errorf("%s: the last element: %v, %v", name, e, err)
		}
		if text := big.String(); !strings.Contains(text, "...") || len(text) > 1000 {
			t.Errorf("%s: prints as %.1000s", name, text)
		}
		for call, err := range map[string]error{
			"Clone":  failed(big.Clone(p.Place)),
			"Neg":    failed(compute.Neg(p.Place, big)),
			"Concat": failed(compute.Concat(p.Place, 0, big, big)),
		} {
			if !errors.Is(err, mem.ErrNoMemory) {
				t.Errorf("%s: %s: %v", name, call, err)
			}
		}
		if _, err := tensor.Data[uint8](big); err == nil {
			t.Errorf("%s: Data of a broadcast view", name)
		}
		all, err := compute.Reduce(p.Place, backend.AllTrue, tensor.Must(one.Expand(1<<20)), compute.Over{})
		want(t, all, err, nil, true)
	}
}

// Shapes whose element counts do not fit an int, or whose joint lengths do not, are refused.
func TestShapesThatOverflow(t *testing.T) {
	p := place(t, "host")
	huge := tensor.Must(slice(t, p, []uint8{1}).Expand(1 << 62))
	if _, err := compute.Concat(p.Place, 0, huge, huge, huge, huge); !errors.Is(err, compute.ErrShape) {
		t.Errorf("concat to an axis of 2^64: %v, want ErrShape", err)
	}
	if _, err := compute.Concat(p.Place, 0, huge, huge); !errors.Is(err, compute.ErrShape) {
		t.Errorf("concat to an axis of 2^63: %v, want ErrShape", err)
	}
	none := tensor.Must(tensor.Must(slice(t, p, []float32{}).Unsqueeze(0)).Expand(1<<40, 0))
	if text := none.String(); !strings.Contains(text, "1099511627776") {
		t.Errorf("no elements in 2^40 rows print as %s", text)
	}
	sum, err := compute.Sum(p.Place, none)
	want(t, sum, err, nil, float32(0))
	if err := failed(compute.Sum(p.Place, none, 1)); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("2^40 sums of nothing: %v, want ErrNoMemory", err)
	}
	if err := failed(compute.MatMul(p.Place, none, none.T())); err == nil {
		t.Error("a product of 2^80 elements")
	}
	if err := failed(compute.NewGenerator(1).Uniform(p.Place, dtype.Float32, -1)); err == nil {
		t.Error("a negative length")
	}
	for call, err := range map[string]error{
		"FromStorage": failed(tensor.FromStorage(p.Place, slice(t, p, make([]float32, 12)).Storage(), dtype.Float32, 0, []int{2, 2}, []int{math.MinInt, math.MaxInt})),
		"Arange":      failed(compute.Arange(p.Place, dtype.DType(99), 0, 1, 1)),
		"Full":        failed(tensor.Full(p.Place, dtype.DType(99), 0, 1, 1)),
		"Cast":        failed(huge.Cast(p.Place, dtype.DType(99))),
	} {
		if err == nil {
			t.Errorf("%s with nonsense is allowed", call)
		}
	}
}

// Values of a huge view come one by one.
func TestValuesOfHugeViews(t *testing.T) {
	p := place(t, "host")
	one := slice(t, p, []uint8{1})
	for _, x := range []*tensor.Tensor{
		tensor.Must(one.Expand(1 << 40)), tensor.Must(one.Expand(3, 1<<35, 2)), tensor.Must(one.Expand(1<<35, 1, 1<<20)),
	} {
		elements, failed := tensor.Values[uint8](x)
		n := 0
		for e := range elements {
			if n += int(e); n == 10 {
				break
			}
		}
		if err := failed(); err != nil || n != 10 {
			t.Errorf("%s: %d of 10 elements, %v", x.Brief(), n, err)
		}
	}
}

// Tensors have 0 to 16 axes. Every operation accepts both extremes, or its error names the missing axis.
func TestRanks(t *testing.T) {
	p := place(t, "host")
	lengths := slices.Repeat([]int{1}, backend.MaxRank)
	lengths[0], lengths[5], lengths[15] = 2, 3, 2
	x := slice(t, p, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, lengths...)
	sum, err := compute.Add(p.Place, x, x.T())
	if err != nil || sum.Len() != 36 || sum.Rank() != 16 {
		t.Errorf("x+x.T() of 16 axes: %s, %v", sum.Brief(), err)
	}
	fewer, err := compute.Sum(p.Place, x, 5)
	want(t, fewer, err, slices.Delete(slices.Clone(lengths), 5, 6), float32(9), 12, 27, 30)
	product, err := compute.MatMul(p.Place, x, tensor.Must(x.MT()))
	if err != nil || product.Len() != 6 {
		t.Errorf("a product of 16 axes: %s, %v", product.Brief(), err)
	}
	zero := p.Adopt(tensor.Must(tensor.FromScalar(p.Unscoped(), dtype.Float32, 3)))
	five, err := compute.Add(p.Place, zero, 2)
	want(t, five, err, nil, float32(5))
	pair, err := compute.Stack(p.Place, 0, zero, zero)
	want(t, pair, err, []int{2}, float32(3), 3)
	values, _, sorting := compute.Sort(p.Place, zero, 0, true)
	greatest, _, choosing := compute.TopK(p.Place, x, math.MaxInt, 0)
	for call, err := range map[string]error{
		"Stack to 17 axes":         failed(compute.Stack(p.Place, 0, x, x)),
		"Softmax of no axis":       failed(compute.Softmax(p.Place, zero, -1)),
		"Sum over none's axis":     failed(compute.Sum(p.Place, zero, 0)),
		"Sort of no axis":          failed(values, sorting),
		"Concat of no axis":        failed(compute.Concat(p.Place, 0, zero, zero)),
		"Sum over the least int":   failed(compute.Sum(p.Place, x, math.MinInt)),
		"Stack at the least int":   failed(compute.Stack(p.Place, math.MinInt, zero, zero)),
		"TopK of the greatest int": failed(greatest, choosing),
		"Gather of another rank":   failed(compute.Gather(p.Place, x, 0, slice(t, p, []int64{0, 0}))),
	} {
		if !errors.Is(err, compute.ErrShape) {
			t.Errorf("%s: %v, want ErrShape", call, err)
		}
	}
	for call, err := range map[string]error{
		"Empty of 17 axes":  failed(tensor.Empty(p.Place, dtype.Float32, append(lengths, 1)...)),
		"Unfold to 17 axes": failed(x.Unfold(0, 1, 1)),
	} {
		if err == nil || !strings.Contains(err.Error(), "17 axes") {
			t.Errorf("%s: %v", call, err)
		}
	}
	norm, err := compute.LayerNorm(p.Place, slice(t, p, []float32{}, 2, 0), slice(t, p, []float32{}), nil, 1e-5)
	want[float32](t, norm, err, []int{2, 0})
}

// The count of a range is exact: it neither overflows nor underflows.
func TestRangesAtTheEndsOfNumbers(t *testing.T) {
	p := place(t, "host")
	for _, c := range []struct {
		d                 dtype.DType
		start, stop, step any
		n                 int // -1: ErrShape
	}{
		{dtype.Int64, 0, 5, math.MaxInt64, 1},
		{dtype.Int64, 0, -5, math.MinInt64, 1},
		{dtype.Float64, 0, uint64(1<<63 + 4096), 1 << 62, 3},
		{dtype.Float64, 1e308, -1e308, -1e308, 2},
		{dtype.Float32, 0, 1, 0.1, 10},
		{dtype.Float64, 3, 3, 1, 0},
		{dtype.Float64, 0.0, 1e-200, -1e-200, -1},
		{dtype.Int64, math.MinInt64, math.MaxInt64, 1, -1},
	} {
		x, err := compute.Arange(p.Place, c.d, c.start, c.stop, c.step)
		switch {
		case c.n < 0:
			if !errors.Is(err, compute.ErrShape) {
				t.Errorf("arange %v: %v, want ErrShape", c, err)
			}
		case err != nil:
			t.Errorf("arange %v: %v", c, err)
		case x.Len() != c.n:
			t.Errorf("arange %v has %d elements", c, x.Len())
		}
	}
	if err := failed(compute.Arange(p.Place, dtype.Int64, 0, 5, 0.5)); !errors.Is(err, compute.ErrType) {
		t.Errorf("integers by halves: %v, want ErrType", err)
	}
}

// Rounding integers copies them. In place, it follows the same rules as every operation.
func TestRoundingOfIntegersInPlace(t *testing.T) {
	p := place(t, "host")
	x := slice(t, p, []int64{300, 2})
	for _, op := range []backend.UnaryOp{backend.Floor, backend.Square} {
		if err := compute.UnaryInto(p.Place, slice(t, p, []bool{false, false}), op, x); !errors.Is(err, compute.ErrType) {
			t.Errorf("%v of integers into bools: %v, want ErrType", op, err)
		}
		if err := compute.UnaryInto(p.Place, slice(t, p, []int64{0, 0, 0}), op, x); !errors.Is(err, compute.ErrShape) {
			t.Errorf("%v of 2 integers into 3: %v, want ErrShape", op, err)
		}
		if err := compute.UnaryInto(p.Place, tensor.Must(slice(t, p, []int64{0}).Expand(2)), op, x); err == nil {
			t.Errorf("%v into a broadcast view is allowed", op)
		}
	}
	wide := slice(t, p, []float32{0, 0})
	err := compute.UnaryInto(p.Place, wide, backend.Floor, x)
	want(t, wide, err, []int{2}, float32(300), 2)
}

// Impossible parameters of random numbers are refused, and do not advance the generator.
func TestRandomNumbersThatCannotBe(t *testing.T) {
	p := place(t, "host")
	g := compute.NewGenerator(1)
	x := slice(t, p, make([]int64, 4))
	for name, err := range map[string]error{
		"an empty range":   g.Fill(p.Place, x, backend.Random{Distribution: backend.Integers, LowInt: 5, HighInt: 3}),
		"2^63 numbers":     failed(g.Integers(p.Place, dtype.Int64, math.MinInt64, 0, 3)),
		"no place":         failed(g.Uniform(nil, dtype.Float32, 3)),
		"no distribution":  g.Fill(p.Place, x, backend.Random{Distribution: 77}),
		"floats as ints":   failed(g.Normal(p.Place, dtype.Int64, 3)),
		"bytes up to 1000": failed(g.Integers(p.Place, dtype.Uint8, 0, 1000, 3)),
	} {
		if !errors.Is(err, compute.ErrShape) && !errors.Is(err, compute.ErrType) && !errors.Is(err, compute.ErrDevice) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if g.Offset() != 0 {
		t.Errorf("the offset is %d after what was refused", g.Offset())
	}
}

// Using a released tensor panics with the caller's line, and leaves nothing behind.
func TestUseAfterRelease(t *testing.T) {
	p := place(t, "host")
	y, index := slice(t, p, make([]float32, 6), 2, 3), slice(t, p, make([]int64, 6), 2, 3)
	cond := slice(t, p, []bool{true})
	x := tensor.Must(tensor.Zeros(p.Unscoped(), dtype.Float32, 2, 3))
	view := x.T()
	x.Release()
	before := p.Leaks().Count
	for name, f := range map[string]func(){
		"neg":         func() { _, _ = compute.Neg(p.Unscoped(), x) },
		"add":         func() { _, _ = compute.Add(p.Unscoped(), x, y) },
		"add second":  func() { _, _ = compute.Add(p.Unscoped(), y, x) },
		"add cast":    func() { _, _ = compute.Add(p.Unscoped(), index, x) },
		"add a view":  func() { _, _ = compute.Add(p.Unscoped(), view, 1) },
		"sum":         func() { _, _ = compute.Sum(p.Unscoped(), x) },
		"argmax":      func() { _, _ = compute.ArgMax(p.Unscoped(), x, 0) },
		"softmax":     func() { _, _ = compute.Softmax(p.Unscoped(), x, 0) },
		"concat":      func() { _, _ = compute.Concat(p.Unscoped(), 0, y, x) },
		"gather":      func() { _, _ = compute.Gather(p.Unscoped(), x, 0, index) },
		"scatter":     func() { _ = compute.ScatterAdd(p.Unscoped(), y, 0, index, x) },
		"where":       func() { _, _ = compute.Where(p.Unscoped(), cond, x, y) },
		"sort":        func() { _, _, _ = compute.Sort(p.Unscoped(), x, 0, false) },
		"matmul":      func() { _, _ = compute.MatMul(p.Unscoped(), y, view) },
		"into":        func() { _ = compute.BinaryInto(p.Unscoped(), y, backend.Add, x, 1) },
		"into itself": func() { _ = compute.BinaryInto(p.Unscoped(), x, backend.Add, y, 1) },
		"Clone":       func() { _, _ = x.Clone(nil) },
		"CopyFrom":    func() { _ = y.CopyFrom(nil, x) },
	} {
		text := testkit.PanicText(f)
		if !strings.Contains(text, "extremes_test.go") || !strings.Contains(text, "released") {
			t.Errorf("%s: %q", name, text)
		}
	}
	if n := p.Leaks().Count - before; n != 0 {
		t.Errorf("panics leak %d storages", n)
	}
	if err := failed(tensor.Full(p.Unscoped(), dtype.Float32, "no number", 3)); err == nil {
		t.Error("Full of a string")
	}
	if err := y.Fill(nil, struct{}{}); err == nil {
		t.Error("Fill with a struct")
	}
}

// Scratch memory of a backend can reuse the memory of dropped tensors, as tensors can.
func TestScratchTakesBackWhatWasDropped(t *testing.T) {
	p := limited(t, 1<<20)
	func() { tensor.Must(tensor.Zeros(p, dtype.Int8, 900<<10)) }()
	q := p.Queue()
	b, err := q.Scratch.Alloc(q.Stream, 500<<10)
	if err != nil {
		t.Fatal("a dropped tensor holds the memory that scratch wants:", err)
	}
	q.Scratch.Free(b)
}

// A shortage of memory causes no deadlock: functions that a collection calls may allocate, and may run out of memory
// too.
func TestDeletersMayAllocate(t *testing.T) {
	p := limited(t, 1<<20)
	var called []string
	func() {
		s, err := tensor.FromBytes(p, make([]byte, 100), func(...driver.Stream) {
			if _, err := p.Alloc(2 << 20); !errors.Is(err, mem.ErrNoMemory) {
				t.Error(err)
			}
			called = append(called, "deleter")
		})
		if err != nil {
			t.Fatal(err)
		}
		s.OnRelease(func() { called = append(called, "after") })
		tensor.Must(tensor.Zeros(p, dtype.Int8, 900<<10))
	}()
	x, err := tensor.Empty(p, dtype.Int8, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	x.Release()
	if !slices.Equal(called, []string{"deleter", "after"}) {
		t.Errorf("called: %v", called)
	}
}

// Goroutines that drop their tensors find room as long as the reachable tensors fit.
func TestManyShortOfMemoryAtOnce(t *testing.T) {
	p := limited(t, 1<<20)
	var short atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				if _, err := tensor.Empty(p, dtype.Int8, 200<<10); err != nil { // four at most can be reached, and five fit
					short.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := short.Load(); n > 0 {
		t.Errorf("%d of 80 allocations found no room", n)
	}
	runtime.GC()
	if x, err := tensor.Empty(p, dtype.Int8, 1<<20); err != nil { // and takes all of it back
		t.Error(err)
	} else {
		x.Release()
	}
}
