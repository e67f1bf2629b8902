package compute_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// windows returns views of 40 elements, 4 by 4 each, that overlap in all ways: writable ones, and then those that lead
// to some elements by several indices.
func windows(x *tensor.Tensor) (writable, all []*tensor.Tensor) {
	must := tensor.Must
	corner := must(must(must(x.Narrow(0, 0, 36)).Reshape(6, 6)).Slice(tensor.FromTo(0, 4), tensor.FromTo(0, 4)))
	next := must(must(must(x.Narrow(0, 0, 36)).Reshape(6, 6)).Slice(tensor.FromTo(1, 5), tensor.FromTo(1, 5)))
	writable = []*tensor.Tensor{
		corner, next, corner.T(), must(corner.Flip()),
		must(must(x.Narrow(0, 3, 16)).Reshape(4, 4)),
		must(x.AsStrided([]int{4, 4}, []int{4, 1}, 0)),
		must(x.AsStrided([]int{4, 4}, []int{1, 4}, 0)),
		must(x.AsStrided([]int{4, 4}, []int{8, 2}, 1)),
		must(x.AsStrided([]int{4, 4}, []int{8, 2}, 0)),
	}
	return writable, append(slices.Clone(writable),
		must(must(x.Narrow(0, 3, 4)).Expand(4, 4)),
		must(x.AsStrided([]int{4, 4}, []int{1, 1}, 2)),
		must(must(must(x.Narrow(0, 2, 1)).Reshape()).Expand(4, 4)))
}

// strangers returns the same windows of x's memory, each in a storage of its own that begins where its elements do.
func strangers(t *testing.T, p *tensor.Place, x *tensor.Tensor) (writable, all []*tensor.Tensor) {
	t.Helper()
	writable, all = windows(x)
	for i, v := range all {
		lowest, size := v.Offset(), int64(v.DType().Size())
		for axis, n := range v.Shape() {
			lowest += min(0, (n-1)*v.Strides()[axis])
		}
		skipped := int64(lowest) * size
		s, err := tensor.FromPointer(p, x.Pointer()+driver.Pointer(skipped), x.Size()-skipped, nil)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = tensor.Must(tensor.FromStorage(p, s, v.DType(), v.Offset()-lowest, v.Shape(), v.Strides()))
		s.Release()
	}
	return all[:len(writable)], all
}

// An operation that overwrites its operands has the same result as with copies of them.
func TestInPlaceOnOverlappingViews(t *testing.T) {
	testInPlace(t, func(_ *tensor.Place, x *tensor.Tensor) (writable, all []*tensor.Tensor) { return windows(x) })
}

// TestDefect05_InPlaceOnOverlappingStorages: the same holds if operands and result are storages over the same memory.
func TestDefect05_InPlaceOnOverlappingStorages(t *testing.T) {
	testInPlace(t, func(p *tensor.Place, x *tensor.Tensor) (writable, all []*tensor.Tensor) { return strangers(t, p, x) })
}

func testInPlace(t *testing.T, windows func(*tensor.Place, *tensor.Tensor) (writable, all []*tensor.Tensor)) {
	whole := place(t, "host")
	data := make([]int64, 40)
	for i := range data {
		data[i] = int64(i * i % 23)
	}
	scope := whole.Scope()
	defer scope.Close()
	writable, all := windows(scope.Place, slice(t, scope, data))
	for name, do := range map[string]func(dst, x, y *tensor.Tensor) error{
		"sub":      func(dst, x, y *tensor.Tensor) error { return compute.BinaryInto(nil, dst, backend.Sub, x, y) },
		"square":   func(dst, x, _ *tensor.Tensor) error { return compute.UnaryInto(nil, dst, backend.Square, x) },
		"CopyFrom": func(dst, x, _ *tensor.Tensor) error { return dst.CopyFrom(nil, x) },
		"scatter": func(dst, x, y *tensor.Tensor) error {
			index, err := compute.Mod(nil, y, 4)
			if err != nil {
				return err
			}
			defer index.Release()
			return compute.ScatterAdd(nil, dst, 0, index, x)
		},
	} {
		for i := range writable {
			for j := range all {
				for k := range all {
					p := whole.Scope()
					one, other := slice(t, p, data), slice(t, p, data)
					d, views := windows(p.Place, one)
					if err := do(d[i], views[j], views[k]); err != nil {
						t.Fatal(err)
					}
					d, views = windows(p.Place, other)
					x, y := tensor.Must(views[j].Clone(p.Place)), tensor.Must(views[k].Clone(p.Place))
					if err := do(d[i], x, y); err != nil {
						t.Fatal(err)
					}
					got, err := tensor.ToSlice[int64](one)
					if err != nil {
						t.Fatal(err)
					}
					expected, err := tensor.ToSlice[int64](other)
					if err != nil || !slices.Equal(got, expected) {
						t.Errorf("%s of views %d and %d into %d: %v, of copies %v, %v", name, j, k, i, got, expected, err)
					}
					p.Close()
				}
			}
		}
	}
}

// A view of a Go slice is host memory, and can be copied to and from any device.
func TestViewsOfSlicesAreCopiedBetweenDevices(t *testing.T) {
	own := place(t, "host")
	for _, spec := range []string{"host", "sim:total=1GiB"} {
		far := place(t, spec)
		x := slice(t, far, []float32{1, 2, 3})
		data := make([]float32, 3)
		v := own.Adopt(tensor.Must(tensor.View(own.Place, data)))
		if err := v.CopyFrom(nil, x); err != nil {
			t.Errorf("from %s: %v", spec, err)
		}
		if err := own.Sync(t.Context()); err != nil || !slices.Equal(data, []float32{1, 2, 3}) {
			t.Errorf("from %s: the slice holds %v, %v", spec, data, err)
		}
		there, err := tensor.Must(v.Flip()).Clone(far.Place)
		want(t, there, err, []int{3}, float32(3), 2, 1)
	}
}

// Tensors that a scope keeps are not moved, and operations use them in place.
func TestKeepOfATensorOnAnotherDevice(t *testing.T) {
	own, far := place(t, "host"), place(t, "sim:total=1GiB")
	s := far.Scope()
	x := s.Keep(tensor.Must(slice(t, s, []float32{1, 2, 3}).To(own.Place)))
	s.Close()
	if !x.Place().SameDevice(own.Place) {
		t.Errorf("a tensor on the host that was kept is on %v", x.Place())
	}
	sum, err := compute.Add(own.Place, x, 1)
	want(t, sum, err, []int{3}, float32(2), 3, 4)
}

// A view that was made in a scope is valid as long as its storage, even after the scope ends.
func TestViewOfWhatWasKept(t *testing.T) {
	p := place(t, "host")
	s := p.Scope()
	x := slice(t, s, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	v := x.T()
	s.Keep(x)
	s.Close()
	got, err := compute.Neg(p.Place, v)
	want(t, got, err, []int{3, 2}, float32(-1), -4, -2, -5, -3, -6)
	got, err = compute.Neg(nil, v)
	p.Adopt(got)
	want(t, got, err, []int{3, 2}, float32(-1), -4, -2, -5, -3, -6)
}

// A caller that takes a block out of a scope's tensor owns it. The scope releases the others.
func TestReleaseBlockInAScope(t *testing.T) {
	p := place(t, "host")
	s := p.Scope()
	slice(t, s, []float32{1})
	x := slice(t, s, []float32{1, 2, 3})
	slice(t, s, []float32{1, 2})
	block, used, err := x.Storage().ReleaseBlock()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if n := p.Leaks().Count; n != 0 {
		t.Errorf("%d storages of a closed scope are alive", n)
	}
	p.Allocator().Free(block, used...)
}

// A closed scope panics before it creates or shares anything.
func TestClosedScopesTakeNothing(t *testing.T) {
	p := place(t, "host")
	x := tensor.Must(tensor.Zeros(p.Unscoped(), dtype.Float32, 4))
	s := p.Scope()
	s.Close()
	for name, f := range map[string]func() error{
		"Zeros":      func() error { _, err := tensor.Zeros(s.Place, dtype.Float32, 4); return err },
		"Full":       func() error { _, err := tensor.Full(s.Place, dtype.Float32, 1, 4); return err },
		"Contiguous": func() error { _, err := x.Contiguous(s.Place); return err },
		"To":         func() error { _, err := x.To(s.Place); return err },
		"Clone":      func() error { _, err := x.Clone(s.Place); return err },
		"FromStorage": func() error {
			_, err := tensor.FromStorage(s.Place, x.Storage(), dtype.Int32, 0, []int{4}, nil)
			return err
		},
		"Neg": func() error { _, err := compute.Neg(s.Place, x); return err },
	} {
		var err error
		if text := testkit.PanicText(func() { err = f() }); !strings.Contains(text, "a scope that is closed") {
			t.Errorf("%s in a closed scope: panic %q, error %v", name, text, err)
		}
	}
	if n := x.Storage().Owners(); n != 1 {
		t.Errorf("%d owners after all that was refused", n)
	}
	x.Release()
	if n := p.Leaks().Count; n != 0 {
		t.Errorf("%d storages leak", n)
	}
}

// Keep into a scope that is closed panics, and leaves the tensor with the scope that had it.
func TestKeepIntoAClosedScope(t *testing.T) {
	p := place(t, "host")
	x := slice(t, p, []float32{1, 2})
	outer := p.Scope()
	inner := outer.Scope()
	made, view := slice(t, inner, []float32{3, 4}), tensor.Must(x.Flip())
	outer.Close()
	for _, y := range []*tensor.Tensor{made, view} {
		if text := testkit.PanicText(func() { inner.Keep(y) }); !strings.Contains(text, "a scope that is closed") {
			t.Errorf("Keep of %s: panic %q", y.Brief(), text)
		}
	}
	inner.Close()
	if n := p.Leaks().Count; n != 1 || x.Storage().Owners() != 1 {
		t.Errorf("%d storages are alive, want that of x alone, which has %d owners", n, x.Storage().Owners())
	}
}
