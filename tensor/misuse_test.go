package tensor_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// A place or a part of it that is missing panics, and so do axes and sizes that cannot be.
func TestMisusePanics(t *testing.T) {
	p := hostPlace(t)
	x := tensor.Must(tensor.FromSlice(p, numbers(6), 2, 3))
	defer x.Release()
	whole := tensor.Config{Device: p.Device(), Allocator: p.Allocator(), Backend: p.Backend()}
	without := func(remove func(c *tensor.Config)) func() {
		c := whole
		remove(&c)
		return func() { tensor.NewPlace(c) }
	}
	var none *tensor.Tensor
	for what, f := range map[string]func(){
		"NewPlace without a device":     without(func(c *tensor.Config) { c.Device = nil }),
		"NewPlace without an allocator": without(func(c *tensor.Config) { c.Allocator = nil }),
		"NewPlace without a backend":    without(func(c *tensor.Config) { c.Backend = nil }),
		"WithAllocator of nil":          func() { p.WithAllocator(nil) },
		"To no place":                   func() { _, _ = x.To(nil) },
		"Empty at no place":             func() { _, _ = tensor.Empty(nil, dtype.Float32, 1) },
		"Alloc of -1 bytes":             func() { _, _ = p.Alloc(-1) },
		"Dim of axis 2":                 func() { x.Dim(2) },
		"Dim of axis -3":                func() { x.Dim(-3) },
		"Rank of nil":                   func() { none.Rank() },
		"Shape of nil":                  func() { none.Shape() },
	} {
		testkit.WantPanic(t, what, "tensor: ", f)
	}
	if x.Dim(1) != 3 || x.Dim(-2) != 2 || x.Rank() != 2 || !x.Defined() || none.Defined() {
		t.Error("a tensor of shape [2, 3] has other axes, or is not defined")
	}
	if got := tensor.NewPlace(whole).Stream(); got != p.Device().DefaultStream() {
		t.Errorf("a place has stream %v by default", got)
	}
}

// Element types and storages that do not fit are errors.
func TestWrongTypesAndStorages(t *testing.T) {
	p, other := hostPlace(t), hostPlace(t)
	x := tensor.Must(tensor.FromSlice(p, numbers(6), 2, 3))
	defer x.Release()
	for want, f := range map[string]func() error{
		"tensor: 200 is not an element type": func() error { _, err := tensor.Empty(p, dtype.DType(200), 2); return err },
		"tensor: 0 is not an element type":   func() error { _, err := tensor.Empty(p, dtype.Invalid, 2); return err },
		"the storage is not on the device of the place": func() error {
			_, err := tensor.FromStorage(other, x.Storage(), dtype.Float32, 0, []int{2}, nil)
			return err
		},
		"1 strides [1] for a shape of 2 axes [2 3]": func() error {
			_, err := tensor.FromStorage(p, x.Storage(), dtype.Float32, 0, []int{2, 3}, []int{1})
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
