package cuda

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

//go:embed kernels/*.ptx.gz
var code embed.FS

// readPTX returns the text of a module. It panics if the program has none of that name.
func readPTX(module string) []byte {
	var text []byte
	file, err := code.Open("kernels/" + module + ".ptx.gz")
	if err == nil {
		defer file.Close()
		var r *gzip.Reader
		if r, err = gzip.NewReader(file); err == nil {
			text, err = io.ReadAll(r)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("compute/cuda: module %s: %v", module, err))
	}
	return text
}

// A family is kernels that take the same parameters, numbered from 0. It is a constant of the program; what a Backend
// has loaded of it stands in Backend.loaded, from base on.
type family struct {
	base   int
	count  int
	params uintptr // the size of the structure that each takes

	// name says what number i is called and which module has it: unary_neg_f32 of unary_f32. "" where there is no such
	// kernel. It is asked when i is first launched, so it may be slow.
	name func(i int) (module, kernel string)
}

// families are all of them, in the order of their bases, for kernelCount and the tests.
var (
	families    []*family
	kernelCount int
)

// newFamily is for the initialization of package variables alone.
func newFamily(count int, params uintptr, name func(i int) (module, kernel string)) *family {
	f := &family{base: kernelCount, count: count, params: params, name: name}
	families = append(families, f)
	kernelCount += count
	return f
}

// loaded is a kernel that was found in its module, or nil.
type loaded struct{ f atomic.Pointer[found] }

type found struct{ driver.Function }

// function returns kernel i of a family, which is loaded if it has not been. The error matches driver.ErrUnsupported if
// there is none.
func (b *Backend) function(f *family, i int) (driver.Function, error) {
	if found := b.loaded[f.base+i].f.Load(); found != nil {
		return found.Function, nil
	}
	return b.load(f, i)
}

func (b *Backend) load(f *family, i int) (driver.Function, error) {
	const call = "compute/cuda"
	module, kernel := f.name(i)
	if kernel == "" {
		return nil, unsupported(call, "there is no kernel for it")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.modules[module]
	if m == nil {
		var err error
		if m, err = b.kernels.Load(readPTX(module)); err != nil {
			return nil, err
		}
		b.modules[module] = m
	}
	function, err := m.Function(kernel)
	if err != nil {
		return nil, err
	}
	b.loaded[f.base+i].f.Store(&found{function})
	return function, nil
}

// elements are the names of the types in kernels/element.cuh and of kernels: sum_f32.
var elements = [...]string{
	dtype.Bool: "b8", dtype.Int8: "i8", dtype.Int16: "i16", dtype.Int32: "i32", dtype.Int64: "i64", dtype.Uint8: "u8",
	dtype.Uint16: "u16", dtype.Uint32: "u32", dtype.Uint64: "u64", dtype.Float16: "f16", dtype.Float32: "f32",
	dtype.Float64: "f64", dtype.BFloat16: "bf16", dtype.Complex64: "c64", dtype.Complex128: "c128",
	dtype.Float8E5M2: "e5m2", dtype.Float8E4M3FN: "e4m3",
}

// typeCount is how many numbers types have, that of no type included.
const typeCount = len(elements)

// isFloat reports whether d is a type that arithmetic in floats is done on: the 8-bit ones are for storage.
func isFloat(d dtype.DType) bool {
	return d == dtype.Float16 || d == dtype.Float32 || d == dtype.Float64 || d == dtype.BFloat16
}

// isNumber reports whether d is an integer type or one of isFloat.
func isNumber(d dtype.DType) bool { return d.IsInteger() || isFloat(d) }

func unsupported(call, format string, args ...any) error {
	return &driver.Error{Call: call, Code: driver.ErrUnsupported, Detail: fmt.Sprintf(format, args...)}
}
