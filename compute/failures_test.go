package compute_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
)

var errScarce = errors.New("an allocation that was told to fail")

// scarce is an allocator whose nth allocation fails, and which knows its blocks. It counts the device's failures that
// it got over: an allocator that cannot learn whether a stream is done asks again later.
type scarce struct {
	mem.Allocator
	dev    *fault.Device
	nth, n int
	got    int64
	blocks map[driver.Pointer]bool
}

func (a *scarce) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if a.n++; a.n == a.nth {
		return mem.Block{}, errScarce
	}
	before := a.dev.Failed()
	b, err := a.Allocator.Alloc(s, size)
	if err == nil {
		a.got += a.dev.Failed() - before
		if b != (mem.Block{}) {
			a.blocks[b.Ptr] = true
		}
	}
	return b, err
}

func (a *scarce) Free(b mem.Block, used ...driver.Stream) {
	if b != (mem.Block{}) && !a.blocks[b.Ptr] {
		panic("a block that is not handed out is freed")
	}
	delete(a.blocks, b.Ptr)
	before := a.dev.Failed()
	a.Allocator.Free(b, used...)
	a.got += a.dev.Failed() - before
}

// A frail device is one whose calls and allocations can be made to fail.
type frail struct {
	*tensor.Place
	dev   *fault.Device
	alloc *scarce
}

func newFrail(t *testing.T, inner driver.Device) frail {
	t.Helper()
	dev := fault.Wrap(inner)
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	b, err := compute.NewBackend(dev)
	if err != nil {
		t.Fatal(err)
	}
	alloc := &scarce{Allocator: a, dev: dev, blocks: map[driver.Pointer]bool{}}
	p := tensor.NewPlace(tensor.Config{
		Device: dev, Allocator: alloc, Backend: b,
		Close: func() error { return errors.Join(b.Close(), a.Close(), dev.Close()) },
	})
	return frail{p, dev, alloc}
}

// fail makes the nth call of the device, or the nth allocation, fail; none if it is 0.
func (f frail) fail(call, allocation int) {
	f.dev.SetRules()
	if call > 0 {
		f.dev.SetRules(fault.Rule{Nth: int64(call)})
	}
	f.alloc.n, f.alloc.nth, f.alloc.got = 0, allocation, 0
}

// failed reports whether anything failed, and gotOver whether that is all the allocator's own business.
func (f frail) failed() bool {
	return f.dev.Failed() > 0 || (f.alloc.nth > 0 && f.alloc.n >= f.alloc.nth)
}

func (f frail) gotOver() bool { return f.alloc.got > 0 }

// operands are the operands of operations: tensors on two streams of one device, and on another device.
type operands struct {
	near, far              frail
	second                 *tensor.Place // another stream of near
	x, ints, bools, wide   *tensor.Tensor
	turned, index, row, at *tensor.Tensor // at is far
}

func newOperands(t *testing.T, near, far frail) *operands {
	t.Helper()
	s := drivertest.NewStream(t, near.dev)
	p, second := near.Place, near.On(s)
	six := []float32{1, 2, 3, 4, 5, 6}
	return &operands{
		near: near, far: far, second: second,
		x:      tensor.Must(tensor.FromSlice(p, six, 2, 3)),
		ints:   tensor.Must(tensor.FromSlice(second, []int32{1, 2, 3, 4, 5, 6}, 2, 3)),
		bools:  tensor.Must(tensor.FromSlice(p, []bool{true, false, true, true, false, true}, 2, 3)),
		wide:   tensor.Must(tensor.FromSlice(p, []float64{1, 2, 3})),
		turned: tensor.Must(tensor.FromSlice(p, six, 3, 2)),
		index:  tensor.Must(tensor.FromSlice(second, []int64{0, 1, 0, 1, 0, 1}, 2, 3)),
		row:    tensor.Must(tensor.FromSlice(p, []float32{1, 2, 3})),
		at:     tensor.Must(tensor.FromSlice(far.Place, six, 2, 3)),
	}
}

func (o *operands) release() {
	for _, x := range []*tensor.Tensor{o.x, o.ints, o.bools, o.wide, o.turned, o.index, o.row, o.at} {
		x.Release()
	}
}

// one and two return results as an operation of the table does.
func one(x *tensor.Tensor, err error) ([]*tensor.Tensor, error) { return []*tensor.Tensor{x}, err }

func two(x, y *tensor.Tensor, err error) ([]*tensor.Tensor, error) {
	return []*tensor.Tensor{x, y}, err
}

// inPlace returns the result of an operation in place on a copy of x.
func inPlace(x *tensor.Tensor, f func(dst *tensor.Tensor) error) ([]*tensor.Tensor, error) {
	dst, err := x.Clone(nil)
	if err != nil {
		return nil, err
	}
	if err := f(dst); err != nil {
		dst.Release()
		return nil, err
	}
	return []*tensor.Tensor{dst}, nil
}

// operations is all that users can ask for, each in the ways that take different turns on the way.
var operations = []struct {
	name string
	do   func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error)
}{
	{"Zeros", func(_ *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(tensor.Zeros(p, dtype.Int8, 3))
	}},
	{"Full", func(_ *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(tensor.Full(p, dtype.Int8, 2, 3))
	}},
	{"FromSlice", func(_ *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(tensor.FromSlice(p, []int32{1, 2}))
	}},
	{"Clone", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(o.ints.Clone(p)) }},
	{"Clone from afar", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(o.at.Clone(p)) }},
	{"Clone from afar, turned", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(o.at.T().Clone(p)) }},
	{"To another device", func(o *operands, _ *tensor.Place) ([]*tensor.Tensor, error) { return one(o.turned.T().To(o.far.Place)) }},
	{"Cast", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(o.x.Cast(p, dtype.Int8)) }},
	{"Cast to another device", func(o *operands, _ *tensor.Place) ([]*tensor.Tensor, error) {
		return one(o.turned.T().Cast(o.far.Place, dtype.Float64))
	}},
	{"Contiguous", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(o.turned.T().Contiguous(p)) }},
	{"Contiguous of what is", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(o.x.Contiguous(p)) }},
	{"CopyFrom afar", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.x, func(dst *tensor.Tensor) error { return dst.CopyFrom(p, o.at) })
	}},
	{"CopyFrom afar, broadcast and turned", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.turned, func(dst *tensor.Tensor) error { return dst.T().CopyFrom(p, tensor.Must(o.at.Narrow(0, 1, 1))) })
	}},
	{"CopyFrom itself", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.x, func(dst *tensor.Tensor) error {
			return tensor.Must(dst.Narrow(1, 0, 2)).CopyFrom(p, tensor.Must(dst.Narrow(1, 1, 2)))
		})
	}},
	{"ToSlice", func(o *operands, _ *tensor.Place) ([]*tensor.Tensor, error) {
		_, err := tensor.ToSlice[float32](o.turned.T())
		return nil, err
	}},
	{"At", func(o *operands, _ *tensor.Place) ([]*tensor.Tensor, error) {
		_, err := o.ints.At(1, 1)
		return nil, err
	}},
	{"String", func(o *operands, _ *tensor.Place) ([]*tensor.Tensor, error) {
		if s := o.turned.T().String(); strings.Contains(s, "driver/fault") || strings.Contains(s, errScarce.Error()) {
			return nil, errors.New(s)
		}
		return nil, nil
	}},
	{"Values", func(o *operands, _ *tensor.Place) ([]*tensor.Tensor, error) {
		elements, failed := tensor.Values[float32](o.turned.T())
		for range elements {
		}
		return nil, failed()
	}},
	{"Exp of integers", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(compute.Exp(p, o.ints)) }},
	{"Floor of integers", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(compute.Floor(p, o.ints)) }},
	{"UnaryInto", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.x, func(dst *tensor.Tensor) error { return compute.UnaryInto(p, dst, backend.Exp, o.ints) })
	}},
	{"Add", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(compute.Add(p, o.x, o.row)) }},
	{"Add of two types", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Add(p, o.ints, o.wide))
	}},
	{"Div of what is cast twice", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Div(p, o.ints, o.bools))
	}},
	{"Mul by a number", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(compute.Mul(p, 2.5, o.ints)) }},
	{"BinaryInto", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.x, func(dst *tensor.Tensor) error { return compute.BinaryInto(p, dst, backend.Add, dst, o.row) })
	}},
	{"BinaryInto of other types", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.x, func(dst *tensor.Tensor) error { return compute.BinaryInto(p, dst, backend.Add, o.ints, o.wide) })
	}},
	{"BinaryInto itself", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.x, func(dst *tensor.Tensor) error {
			return compute.BinaryInto(p, tensor.Must(dst.Narrow(1, 0, 2)), backend.Add, tensor.Must(dst.Narrow(1, 1, 2)), 2)
		})
	}},
	{"Where", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Where(p, o.bools, o.ints, 2.5))
	}},
	{"Sum", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) { return one(compute.Sum(p, o.ints)) }},
	{"Mean over an axis", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Mean(p, o.turned.T(), 0))
	}},
	{"ArgMax", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.ArgMax(p, o.turned.T(), 0))
	}},
	{"Softmax", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Softmax(p, o.turned.T(), 0))
	}},
	{"LayerNorm", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.LayerNorm(p, o.turned.T(), o.row, o.row, 1e-5))
	}},
	{"Gather", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Gather(p, o.x, 1, o.index))
	}},
	{"IndexSelect", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.IndexSelect(p, o.x, 1, tensor.Must(o.index.Select(0, 0))))
	}},
	{"ScatterAdd", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.x, func(dst *tensor.Tensor) error { return compute.ScatterAdd(p, dst, 1, o.index, o.turned.T()) })
	}},
	{"ScatterAdd of itself by itself", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return inPlace(o.index, func(dst *tensor.Tensor) error { return compute.ScatterAdd(p, dst, 1, dst, dst) })
	}},
	{"Concat of three types", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Concat(p, 0, o.x, o.ints, o.bools))
	}},
	{"Stack", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Stack(p, -1, o.x, o.ints))
	}},
	{"Sort", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return two(compute.Sort(p, o.turned.T(), 0, true))
	}},
	{"TopK", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return two(compute.TopK(p, o.turned.T(), 1, 0))
	}},
	{"MatMul", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.MatMul(p, o.x, o.turned))
	}},
	{"Uniform", func(_ *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.NewGenerator(1).Uniform(p, dtype.Float32, 3))
	}},
	{"Arange", func(_ *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		return one(compute.Arange(p, dtype.Int64, 0, 5, 1))
	}},
	{"several in a scope", func(o *operands, p *tensor.Place) ([]*tensor.Tensor, error) {
		s := p.Scope()
		defer s.Close()
		sum, err := compute.Add(s.Place, o.ints, o.wide)
		if err != nil {
			return nil, err
		}
		soft, err := compute.Softmax(s.Place, sum, 0)
		if err != nil {
			return nil, err
		}
		values, indices, err := compute.Sort(s.Place, soft, 0, false)
		if err != nil {
			return nil, err
		}
		return []*tensor.Tensor{s.Keep(values), s.Keep(indices.T())}, nil
	}},
}

// If any device call or allocation of an operation fails, the operation returns an error, leaves nothing allocated, and
// does not change its operands. The next attempt succeeds.
func TestFailuresLeakNothing(t *testing.T) {
	const elsewhere = 0x100_0000_0000
	for _, pair := range []struct {
		name      string
		near, far driver.Device
	}{
		{"sim and sim", simulated(0, sim.AtOnce, 0), simulated(0, sim.AtOnce, elsewhere)},
		{"sim and host", simulated(0, sim.AtOnce, 0), smallHost(t)},
		{"host and sim", smallHost(t), simulated(0, sim.AtOnce, 0)},
		{"host and host", smallHost(t), smallHost(t)},
	} {
		near, far := newFrail(t, pair.near), newFrail(t, pair.far)
		o := newOperands(t, near, far)
		runs := 0
		for _, op := range operations {
			for _, p := range []*tensor.Place{near.Place, o.second} {
				for _, mode := range []struct {
					what string
					fail func(n int)
				}{
					{"call", func(n int) { near.fail(n, 0) }},
					{"call of the other device", func(n int) { far.fail(n, 0) }},
					{"allocation", func(n int) { near.fail(0, n); far.fail(0, n) }},
				} {
					good := attempt(t, o, func() ([]*tensor.Tensor, error) { return op.do(o, p) })
					if good.err != nil {
						t.Fatalf("%s: %s: %v", pair.name, op.name, good.err)
					}
					for n := 1; ; n++ {
						mode.fail(n)
						got := attempt(t, o, func() ([]*tensor.Tensor, error) { return op.do(o, p) })
						runs++
						where := fmt.Sprintf("%s: %s, failing %s %d", pair.name, op.name, mode.what, n)
						if got.leaked != "" {
							t.Errorf("%s: %v; %s", where, got.err, got.leaked)
						}
						if !got.failed {
							if got.err != nil || !slices.EqualFunc(got.values, good.values, bytes.Equal) {
								t.Errorf("%s, then nothing: %v, other values than before", where, got.err)
							}
							break
						}
						if got.err == nil && !got.gotOver {
							t.Errorf("%s: no error", where)
						}
					}
				}
			}
		}
		if runs < 600 {
			t.Errorf("%s: only %d runs: few calls fail", pair.name, runs)
		}
		o.release()
		if err := errors.Join(near.Close(), far.Close()); err != nil {
			t.Errorf("%s: %v", pair.name, err)
		}
	}
}

// An outcome is the result of an operation while failures were set.
type outcome struct {
	err     error
	failed  bool     // something was made to fail
	gotOver bool     // but only the allocator saw it
	values  [][]byte // of the results
	leaked  string   // what was left behind
}

// attempt does an operation, and releases its results.
func attempt(t *testing.T, o *operands, do func() ([]*tensor.Tensor, error)) (out outcome) {
	t.Helper()
	alive := func() [4]int {
		return [4]int{len(o.near.alloc.blocks), len(o.far.alloc.blocks), o.near.Leaks().Count, o.far.Leaks().Count}
	}
	before := alive()
	results, err := do()
	out.err, out.failed, out.gotOver = err, o.near.failed() || o.far.failed(), o.near.gotOver() || o.far.gotOver()
	o.near.fail(0, 0)
	o.far.fail(0, 0)
	if err == nil {
		for _, x := range results {
			b := make([]byte, x.Size())
			if err := x.Read(b); err != nil {
				t.Error(err)
			}
			out.values = append(out.values, b)
			x.Release()
		}
	}
	if after := alive(); after != before {
		out.leaked = fmt.Sprintf("blocks and storages of both devices were %d, are %d", before, after)
	}
	return out
}
