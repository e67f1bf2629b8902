package dlpack

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// The structures lie as C's do: see testdata/layout.c.
func TestLayoutIsThatOfC(t *testing.T) {
	want, err := os.ReadFile("testdata/layout.txt")
	testkit.Must(t, err)
	var got strings.Builder
	for _, c := range []struct {
		v      any
		fields string
	}{
		{Version{}, "major minor"},
		{Device{}, "device_type device_id"},
		{DataType{}, "code bits lanes"},
		{Tensor{}, "data device ndim dtype shape strides byte_offset"},
		{Legacy{}, "dl_tensor manager_ctx deleter"},
		{Managed{}, "version manager_ctx deleter flags dl_tensor"},
	} {
		typ := reflect.TypeOf(c.v)
		fmt.Fprintf(&got, "%s %d\n", typ.Name(), typ.Size())
		names := strings.Fields(c.fields)
		if len(names) != typ.NumField() {
			t.Fatalf("%s has %d fields", typ.Name(), typ.NumField())
		}
		for i, name := range names {
			fmt.Fprintf(&got, "%s.%s %d\n", typ.Name(), name, typ.Field(i).Offset)
		}
	}
	if runtime.GOARCH == "386" || runtime.GOARCH == "arm" {
		return // layout.txt is of 64 bits
	}
	if got.String() != string(want) {
		t.Errorf("Go has\n%sC has\n%s", &got, want)
	}
}

func filled(t *testing.T, p *tensor.Place, d dtype.DType, shape ...int) *tensor.Tensor {
	t.Helper()
	n := d.Size()
	for _, k := range shape {
		n *= k
	}
	raw := make([]byte, n)
	for i := range raw {
		raw[i] = byte(i*7 + 1)
	}
	x, err := tensor.FromSlice(p, raw)
	testkit.Must(t, err)
	defer x.Release()
	y, err := tensor.FromStorage(p, x.Storage(), d, 0, shape, nil)
	testkit.Must(t, err)
	return y
}

// Every type and kind of view, exported and imported again through both structures: it is the same memory, and it lives
// as long as it is used.
func TestExportAndImportAgain(t *testing.T) {
	for where, p := range map[string]*tensor.Place{"host": tensortest.Host(t), "cuda": gpuPlace(t, 3)} {
		for _, d := range dtype.All() {
			x := filled(t, p, d, 3, 4)
			views := map[string]*tensor.Tensor{"whole": x, "transposed": x.T()}
			for name, r := range map[string][]tensor.Range{
				"row": {tensor.Index(1)}, "one": {tensor.Index(2), tensor.Index(3)}, "none": {tensor.FromTo(1, 1)}, "columns": {tensor.Whole, tensor.FromTo(1, 3)},
				"backwards": {tensor.Whole.By(-1), tensor.Whole.By(-2)},
			} {
				v, err := x.Slice(r...)
				testkit.Must(t, err)
				views[name] = v
			}
			for name, v := range views {
				m, err := Export(v)
				testkit.Must(t, err)
				old, err := ExportLegacy(v)
				testkit.Must(t, err)
				if m.Version != (Version{1, 1}) || m.Tensor.NDim != int32(v.Rank()) || m.Flags != 0 || m.Tensor.ByteOffset != 0 || (m.Tensor.Data == 0) != (v.Len() == 0) {
					t.Errorf("%s %v %s: %+v", where, d, name, m)
				}
				for _, back := range []func() (*tensor.Tensor, error){
					func() (*tensor.Tensor, error) { return Import(p, m.Address()) },
					func() (*tensor.Tensor, error) { return ImportLegacy(p, old.Address()) },
				} {
					y, err := back()
					testkit.Must(t, err)
					if y.DType() != d || !slices.Equal(y.Shape(), v.Shape()) || !bytes.Equal(tensortest.Content(t, y), tensortest.Content(t, v)) {
						t.Errorf("%s %v %s: %v, want %v", where, d, name, y, v)
					}
					y.Release()
				}
			}
			x.Release()
		}
	}
	if n := len(exports.live); n != 0 {
		t.Errorf("%d exports are left", n)
	}
}

func TestTheStorageIsKeptUntilTheDeleter(t *testing.T) {
	p := tensortest.Host(t)
	x := filled(t, p, dtype.Float32, 2)
	s := x.Storage()
	m, err := Export(x)
	testkit.Must(t, err)
	x.Release()
	if s.Owners() != 1 {
		t.Fatalf("%d owners beside the consumer", s.Owners()-1)
	}
	// The consumer writes to the same memory.
	*(*float32)(at(m.Tensor.Data)) = 5
	y, err := Import(p, m.Address())
	testkit.Must(t, err)
	if v, err := y.At(0); err != nil || v.Float64() != 5 {
		t.Errorf("%v, %v", v, err)
	}
	if s.Owners() != 1 {
		t.Errorf("%d owners", s.Owners())
	}
	y.Release()
	if s.Owners() != 0 {
		t.Errorf("%d owners after the deleter", s.Owners())
	}
	// Go's own memory too.
	data := []int32{1, 2, 3}
	kept = append(kept, data)
	g, err := tensor.View(p, data)
	testkit.Must(t, err)
	m, err = Export(g)
	testkit.Must(t, err)
	if m.Tensor.Data != uintptr(unsafe.Pointer(&data[0])) {
		t.Error("elsewhere")
	}
	g.Release()
	runtime.GC()
	m.Delete()
	if canCall {
		testkit.WantPanic(t, "a second Delete", "", m.Delete)
	}
}

// foreign is a structure over Go's memory, without a deleter.
func foreign(shape, strides []int64, data []float32) *Managed {
	m := &Managed{Version: Version{1, 0}, Tensor: Tensor{Device: Device{Type: CPU}, NDim: int32(len(shape)), DType: DataType{Float, 32, 1}}}
	kept = append(kept, m, shape, strides, data)
	if len(data) > 0 {
		m.Tensor.Data = uintptr(unsafe.Pointer(&data[0]))
	}
	if len(shape) > 0 {
		m.Tensor.Shape = uintptr(unsafe.Pointer(&shape[0]))
	}
	if len(strides) > 0 {
		m.Tensor.Strides = uintptr(unsafe.Pointer(&strides[0]))
	}
	return m
}

func TestImportOfOtherForms(t *testing.T) {
	p := tensortest.Host(t)
	data := []float32{0, 1, 2, 3, 4, 5, 6, 7}
	for what, c := range map[string]struct {
		shape, strides []int64
		change         func(*Managed)
		want           []float32
	}{
		"without strides":   {[]int64{2, 2}, nil, nil, []float32{0, 1, 2, 3}},
		"with strides":      {[]int64{2, 2}, []int64{1, 3}, nil, []float32{0, 3, 1, 4}},
		"repeated":          {[]int64{3}, []int64{0}, nil, []float32{0, 0, 0}},
		"an offset":         {[]int64{2}, nil, func(m *Managed) { m.Tensor.ByteOffset = 8 }, []float32{2, 3}},
		"backwards":         {[]int64{3}, []int64{-2}, func(m *Managed) { m.Tensor.ByteOffset = 20 }, []float32{5, 3, 1}},
		"no axes":           {nil, nil, nil, []float32{0}},
		"no elements":       {[]int64{2, 0}, []int64{5, 5}, func(m *Managed) { m.Tensor.Data = 0 }, nil},
		"pinned":            {[]int64{1}, nil, func(m *Managed) { m.Tensor.Device = Device{CUDAHost, 0} }, []float32{0}},
		"a later minor":     {[]int64{1}, nil, func(m *Managed) { m.Version.Minor = 9 }, []float32{0}},
		"unknown flags":     {[]int64{1}, nil, func(m *Managed) { m.Flags = 1<<40 | Copied }, []float32{0}},
		"any stride of one": {[]int64{1, 2}, []int64{math.MinInt64, 1}, nil, []float32{0, 1}},
		"read-only, a view": {[]int64{2, 2}, []int64{1, 2}, func(m *Managed) { m.Flags = ReadOnly }, []float32{0, 2, 1, 3}},
	} {
		m := foreign(c.shape, c.strides, data)
		if c.change != nil {
			c.change(m)
		}
		x, err := Import(p, m.Address())
		testkit.Must(t, err)
		got, err := tensor.ToSlice[float32](x)
		testkit.Must(t, err)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
		if x.Len() > 0 && what != "repeated" {
			testkit.Must(t, x.Fill(nil, 9))
			testkit.Must(t, p.Sync(t.Context()))
			if changed := slices.Contains(data, 9); changed == (m.Flags == ReadOnly) {
				t.Errorf("%s: the memory was changed: %t", what, changed)
			}
		}
		for i := range data {
			data[i] = float32(i)
		}
		x.Release()
	}
}

func TestImportRefuses(t *testing.T) {
	p, cuda := tensortest.Host(t), gpuPlace(t, 1)
	for what, c := range map[string]struct {
		change func(*Managed)
		want   error
	}{
		"version 2":         {func(m *Managed) { m.Version = Version{2, 0}; m.Tensor.Data = 1 }, ErrVersion},
		"version 0":         {func(m *Managed) { m.Version = Version{0, 8} }, ErrVersion},
		"a GPU":             {func(m *Managed) { m.Tensor.Device = Device{CUDA, 0} }, ErrDevice},
		"Metal":             {func(m *Managed) { m.Tensor.Device = Device{8, 0} }, ErrDevice},
		"managed":           {func(m *Managed) { m.Tensor.Device = Device{13, 0} }, ErrDevice},
		"lanes":             {func(m *Managed) { m.Tensor.DType.Lanes = 4 }, ErrType},
		"no lanes":          {func(m *Managed) { m.Tensor.DType.Lanes = 0 }, ErrType},
		"80 bits":           {func(m *Managed) { m.Tensor.DType.Bits = 80 }, ErrType},
		"4 bits":            {func(m *Managed) { m.Tensor.DType = DataType{17, 4, 1} }, ErrType},
		"a handle":          {func(m *Managed) { m.Tensor.DType = DataType{3, 64, 1} }, ErrType},
		"another float8":    {func(m *Managed) { m.Tensor.DType = DataType{11, 8, 1} }, ErrType},
		"a negative rank":   {func(m *Managed) { m.Tensor.NDim = -1 }, ErrInvalid},
		"a large rank":      {func(m *Managed) { m.Tensor.NDim = math.MaxInt32 }, ErrInvalid},
		"no shape":          {func(m *Managed) { m.Tensor.Shape = 0 }, ErrInvalid},
		"no memory":         {func(m *Managed) { m.Tensor.Data = 0 }, ErrInvalid},
		"not aligned":       {func(m *Managed) { m.Tensor.ByteOffset = 1 }, ErrInvalid},
		"an endless offset": {func(m *Managed) { m.Tensor.ByteOffset = math.MaxUint64 - 7 }, ErrInvalid},
		"before all memory": {func(m *Managed) { m.Tensor.Data = 8; m.Tensor.Strides = address(-1<<20, -4) }, ErrInvalid},
		"a negative length": {func(m *Managed) { m.Tensor.Shape = address(2, -2) }, ErrInvalid},
		"too many elements": {func(m *Managed) { m.Tensor.Shape = address(1<<40, 1<<40) }, ErrInvalid},
		"a stride too long": {func(m *Managed) { m.Tensor.Strides = address(math.MaxInt64, 1) }, ErrInvalid},
		"a stride too low":  {func(m *Managed) { m.Tensor.Strides = address(1, math.MinInt64) }, ErrInvalid},
	} {
		m := foreign([]int64{2, 2}, nil, make([]float32, 4))
		c.change(m)
		if _, err := Import(p, m.Address()); !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "dlpack: import") {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	for _, d := range []Device{{CUDA, 0}, {CUDA, 2}, {CPU, 0}, {CUDAHost, 1}} {
		m := foreign([]int64{2, 2}, nil, make([]float32, 4))
		m.Tensor.Device = d
		if _, err := Import(cuda, m.Address()); !errors.Is(err, ErrDevice) || !strings.Contains(err.Error(), "cuda:1") {
			t.Errorf("%v on cuda:1: %v", d, err)
		}
	}
	for _, f := range []func(*tensor.Place, uintptr) (*tensor.Tensor, error){Import, ImportLegacy} {
		if _, err := f(p, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("NULL: %v", err)
		}
	}
	x := filled(t, tensortest.Sim(t), dtype.Int8, 1)
	defer x.Release()
	if _, err := Export(x); !errors.Is(err, ErrDevice) || !strings.Contains(err.Error(), "sim") {
		t.Errorf("export from a simulated device: %v", err)
	}
}

// address returns where two numbers are.
func address(a, b int64) uintptr {
	n := &[2]int64{a, b}
	kept = append(kept, n)
	return uintptr(unsafe.Pointer(n))
}

// kept holds values that are referenced by their address alone: this keeps them off the stack, which may move, and
// alive.
var kept []any
