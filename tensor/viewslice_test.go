package tensor_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

type celsius float32

func TestViewsOfGoSlices(t *testing.T) {
	p := openHost()
	defer p.Close()
	data := []celsius{0, 1, 2, 3, 4, 5}
	x, err := tensor.View(p, data, 2, 3)
	if err != nil || !x.Owns() || x.Storage().Owners() != 1 || x.DType() != dtype.Float32 || x.Pointer() != 0 {
		t.Fatal(err, x.Brief())
	}
	data[4] = 40
	if got, err := tensor.ToSlice[float32](x.T()); err != nil || !slices.Equal(got, []float32{0, 3, 1, 40, 2, 5}) {
		t.Error("what is written to the slice is seen in the tensor:", got, err)
	}
	if err := tensor.Must(x.Select(1, 0)).Fill(nil, -1); err != nil {
		t.Fatal(err)
	}
	if err := p.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	if want := []celsius{-1, 1, 2, -1, 40, 5}; !slices.Equal(data, want) {
		t.Errorf("what is written to the tensor is seen in the slice: %v", data)
	}
	x.Release()

	back, err := tensor.ViewStrided(p, data, 5, []int{2, 2}, []int{-3, -1})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tensor.ToSlice[celsius](back); err != nil || !slices.Equal(got, []celsius{5, 40, 2, 1}) {
		t.Error("backwards:", got, err)
	}
	back.Release()

	scope := p.Scope()
	kept := tensor.Must(tensor.View(scope.Place, data)).Storage()
	scope.Close()
	if kept.Owners() != 0 {
		t.Error("a scope releases views of slices, too")
	}
	for _, data := range [][]int64{nil, {}} {
		none := tensor.Must(tensor.View(p, data))
		if none.Len() != 0 || !slices.Equal(none.Shape(), []int{0}) {
			t.Error("no element:", none.Brief())
		}
		none.Release()
	}
	single := tensor.Must(tensor.ViewStrided(p, []int64{7}, 0, nil, nil))
	if v, err := single.Item(); err != nil || v.Int64() != 7 {
		t.Error("without axes:", v, err)
	}
	single.Release()
}

func TestViewsOfGoSlicesStayInside(t *testing.T) {
	p := hostPlace(t)
	data := make([]int16, 12)
	for _, c := range []struct {
		offset         int
		shape, strides []int
		ok             bool
	}{
		{0, []int{3, 4}, nil, true},
		{0, []int{3, 4}, []int{1, 3}, true},
		{11, []int{3, 4}, []int{-4, -1}, true},
		{3, []int{3, 4}, []int{4, -1}, true},
		{0, []int{1000, 12}, []int{0, 1}, true},
		{12, []int{0, 4}, nil, true},
		{1, []int{3, 4}, nil, false},
		{-1, []int{2}, nil, false},
		{2, []int{3, 4}, []int{4, -1}, false},
		{4, []int{3, 4}, []int{4, -1}, false},
		{0, []int{2}, []int{12}, false},
		{0, []int{2}, []int{-1}, false},
		{0, []int{-1}, nil, false},
		{0, []int{2, 2}, []int{1}, false},
	} {
		x, err := tensor.ViewStrided(p, data, c.offset, c.shape, c.strides)
		if (err == nil) != c.ok {
			t.Errorf("offset %d, shape %v, strides %v: %v", c.offset, c.shape, c.strides, err)
		}
		if err == nil {
			x.Release()
		} else if !strings.HasPrefix(err.Error(), "tensor: ") {
			t.Error(err)
		}
	}
	if _, err := tensor.View(p, data, 3, 3); err == nil || err.Error() != "tensor: View: 12 elements do not fill int16[3 3], which has 9" {
		t.Error("another number of elements:", err)
	}
	if n := p.Leaks().Count; n != 0 {
		t.Errorf("%d storages are left of views that failed", n)
	}
	if _, err := tensor.View(placeOn(t, drivertest.OpenSim(t, 0)), data); err == nil || !strings.Contains(err.Error(), "FromSlice") {
		t.Error("on another device:", err)
	}
}

// The tensor keeps the slice from the collector until its release, and no longer.
func TestViewKeepsTheSliceReachable(t *testing.T) {
	p := hostPlace(t)
	freed := make(chan bool, 1)
	x := func() *tensor.Tensor {
		data := new([1 << 16]int64)
		data[9] = 99
		runtime.AddCleanup(data, func(freed chan bool) { freed <- true }, freed)
		return tensor.Must(tensor.View(p, data[:]))
	}()
	runtime.GC()
	runtime.GC()
	if v, err := tensor.Data[int64](x); err != nil || v[9] != 99 || len(freed) > 0 {
		t.Fatal("the slice is gone", err)
	}
	x.Release()
	x = nil
	runtime.GC()
	<-freed
}
