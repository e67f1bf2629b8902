package tensor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	computehost "github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/tensor"
)

// simPlace returns a place on a device whose memory Go code cannot reach.
func simPlace(t *testing.T) (*tensor.Place, *fault.Device) {
	t.Helper()
	dev := fault.Wrap(drivertest.OpenSim(t, 0))
	return placeOn(t, dev, func(c *tensor.Config) { c.Backend = computehost.New(dev, computehost.Options{}) }), dev
}

func TestValuesAreTheElementsRowByRow(t *testing.T) {
	host := openHost()
	defer host.Close()
	device, _ := simPlace(t)
	for _, p := range []*tensor.Place{host, device} {
		x := tensor.Must(tensor.FromSlice(p, numbers(600*1000), 2, 300, 1000)) // rows of more than a piece
		for _, v := range []*tensor.Tensor{
			x,
			x.T(),
			tensor.Must(x.Slice(tensor.Rest, tensor.Whole.By(-3))),
			tensor.Must(tensor.Must(x.Select(0, 1)).Expand(2, 300, 1000)),
			tensor.Must(x.Slice(tensor.Index(0), tensor.Index(7), tensor.Index(9))),
			tensor.Must(x.Slice(tensor.FromTo(2, 2))),
		} {
			want, err := tensor.ToSlice[float32](v)
			if err != nil {
				t.Fatal(err)
			}
			values, failed := tensor.Values[float32](v)
			for range 2 { // it can be ranged over again
				got := make([]float32, 0, len(want))
				for e := range values {
					got = append(got, e)
				}
				if err := failed(); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%v of %v on %v: %d values, %v", v.Strides(), v.Brief(), p, len(got), err)
				}
			}
			shape, strides := v.Shape(), v.Strides()
			all, failed := tensor.All[float32](v)
			n := 0
			for index, e := range all {
				at := v.Offset()
				for a, i := range index {
					if i < 0 || i >= shape[a] {
						t.Fatalf("index %v of %v", index, v.Brief())
					}
					at += i * strides[a]
				}
				if e != float32(at) || e != want[n] {
					t.Fatalf("%v: %v at %v, want %v", v.Brief(), e, index, want[n])
				}
				n++
			}
			if err := failed(); err != nil || n != len(want) {
				t.Fatal(n, err)
			}
		}
		x.Release()
		if n := p.Leaks().Count; n != 0 {
			t.Errorf("loops left %d storages", n)
		}
	}
}

func TestValuesStopWhenTheLoopDoes(t *testing.T) {
	p, dev := simPlace(t)
	x := tensor.Must(tensor.FromSlice(p, numbers(4<<20/4*3), 3, 1<<20))
	defer x.Release()
	for _, v := range []*tensor.Tensor{x, x.T()} {
		dev.SetRules()
		values, failed := tensor.Values[float32](v)
		for e := range values {
			if e != 0 {
				t.Error("first", e)
			}
			break
		}
		if n := dev.CallsOf(intercept.CopyOut); failed() != nil || n != 1 {
			t.Errorf("one value took %d copies: %v", n, failed())
		}
		index, failed := tensor.All[float32](v)
		for i := range index {
			if i[len(i)-1] == 2 {
				break
			}
		}
		if err := failed(); err != nil {
			t.Error(err)
		}
	}
	dev.SetRules()
}

func TestValuesTellWhatFailed(t *testing.T) {
	p, dev := simPlace(t)
	x := tensor.Must(tensor.FromSlice(p, numbers(1<<20)))
	defer x.Release()
	dev.SetRules(fault.Rule{Kind: intercept.CopyOut, Nth: 2, Code: driver.ErrLost})
	values, failed := tensor.Values[float32](x)
	n := 0
	for range values {
		n++
	}
	if err := failed(); !errors.Is(err, driver.ErrLost) || n != 1<<18 {
		t.Errorf("the second copy failed after %d values: %v", n, err)
	}
	dev.SetRules()
	for range values {
		n++
	}
	if err := failed(); err != nil || n != 1<<18+1<<20 {
		t.Errorf("once it works again: %d values, %v", n, err)
	}
	wrong, failed := tensor.Values[int32](x)
	for range wrong {
		t.Fatal("a value of another type")
	}
	if err := failed(); err == nil || !strings.Contains(err.Error(), "Values of float32[1048576] as int32") {
		t.Error(err)
	}
}

func TestAlong(t *testing.T) {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, numbers(6), 2, 3))
	defer x.Release()
	columns, err := x.Along(-1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, column := range columns {
		elements, err := tensor.ToSlice[float32](column)
		got = append(got, fmt.Sprint(i, elements, err, column.Owns()))
	}
	if want := []string{"0 [0 3] <nil> false", "1 [1 4] <nil> false", "2 [2 5] <nil> false"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i := range columns {
		if i == 1 {
			break
		}
	}
	if _, err := x.Along(2); err == nil || err.Error() != "tensor: Along(2) of float32[2 3]: there is no axis 2" {
		t.Error(err)
	}
}

func BenchmarkViews(b *testing.B) {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, numbers(24), 4, 6))
	defer x.Release()
	for name, f := range map[string]func(){
		"T":       func() { x.T() },
		"Slice":   func() { _, _ = x.Slice(tensor.FromTo(1, 3), tensor.Index(2)) },
		"Reshape": func() { _, _ = x.Reshape(2, 2, -1) },
		"Narrow":  func() { _, _ = x.Narrow(1, 2, 3) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

func BenchmarkValues(b *testing.B) {
	p := openHost()
	defer p.Close()
	x := tensor.Must(tensor.FromSlice(p, numbers(1<<20), 1<<10, 1<<10))
	defer x.Release()
	for name, v := range map[string]*tensor.Tensor{"Contiguous": x, "Transposed": x.T()} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(v.Size())
			sum := float32(0)
			for b.Loop() {
				values, _ := tensor.Values[float32](v)
				for e := range values {
					sum += e
				}
			}
		})
	}
}
