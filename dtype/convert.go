package dtype

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"
)

// Convert converts the elements of src to dst, which has the exact size for as many elements and does not overlap src,
// and returns their number. Any alignment is allowed; that of the types is faster. It panics if the lengths do not
// match or a type is not valid.
//
// Every pair of types has one result for every value:
//
//   - A number that the target type has is unchanged.
//   - To a floating-point type: the nearest number, ties to even, rounded once. A number that rounds beyond the largest
//     becomes infinity or, in Float8E4M3FN, which has none, NaN.
//   - A float to an integer: truncated toward zero, saturated to the smallest or the largest integer, 0 for NaN.
//   - An integer to a narrower type or one of the other sign: the low bits.
//   - To Bool: whether it is nonzero, as NaN is; a complex number is 0 if both parts are. From Bool: 0 or 1.
//   - A complex number to a real type: its real part. A real number to a complex type: the imaginary part is 0.
//   - A NaN to another floating-point format: the quiet NaN of the same sign without payload (0x7e00, 0x7fc0, 0x7f,
//     0x7fc00000, 0x7ff8000000000000). Within one format its bits are kept.
//
// PyTorch has the same results, except where it has several or rounds twice:
//
//   - A float out of the range of an integer type is undefined in C++, and PyTorch's CPU and CUDA kernels differ. (For
//     Uint8 PyTorch converts through int64 and wraps.) NVIDIA's conversions saturate, as here.
//   - PyTorch converts Float64, Int64 and Int32 to Float16, BFloat16 and the 8-bit floats through float32, and so
//     rounds twice: 1+2^-11+2^-40 becomes 1 as a Float16, where the nearest is 1+2^-10.
//   - PyTorch makes NaNs with any bits and either sign in BFloat16.
//   - PyTorch 1.13 converts only the real part to Bool; later versions convert both, as here.
func Convert(dst []byte, to DType, src []byte, from DType) (n int) {
	Converter(to, from)(dst, src)
	return len(src) / from.Size()
}

// ConvertSlice is Convert for slices of equal length: ConvertSlice(halves, floats) with halves of F16 rounds float32s.
func ConvertSlice[D, S Element](dst []D, src []S) {
	Converter(Of[D](), Of[S]())(bytesOf(dst), bytesOf(src))
}

// bytesOf returns the memory of s, which holds no pointers.
func bytesOf[T Element](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(zero))
}

// Converter returns the function that Convert calls, so that the pair of types is looked up once. The function is safe
// for concurrent use and takes temporary memory from a pool. Converter panics if a type is not valid, and the function
// if the lengths do not match.
func Converter(to, from DType) func(dst, src []byte) {
	to.check("Converter")
	from.check("Converter")
	return converters()[to][from]
}

var converters = sync.OnceValue(func() *[count][count]func(dst, src []byte) {
	var all [count][count]func(dst, src []byte)
	for _, to := range All() {
		for _, from := range All() {
			c := conversion{to: newEnd(to), from: newEnd(from)}
			if to != from {
				c.steps = steps().route(to, from)
			}
			all[to][from] = c.run
		}
	}
	return &all
})

// A conversion converts one type to another.
type conversion struct {
	to, from end
	steps    []step // none if the types are the same
}

// An end is the source or the destination of a conversion: a type of 1<<shift bytes and its alignment, precomputed for
// short runs.
type end struct {
	DType
	shift, align int
}

func newEnd(d DType) end { return end{d, bits.TrailingZeros(uint(d.Size())), goTypes[d].Align()} }

// aligned reports whether the memory is aligned for the elements.
func (e *end) aligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(e.align-1) == 0
}

func (c *conversion) run(dst, src []byte) {
	if n := len(src) >> c.from.shift; len(src) != n<<c.from.shift || len(dst) != n<<c.to.shift {
		panic(fmt.Sprintf("dtype: convert: %d bytes of %v do not fit %d bytes of %v", len(src), c.from, len(dst), c.to))
	}
	switch {
	case len(c.steps) == 0:
		copy(dst, src)
	case len(c.steps) == 1 && c.to.aligned(dst) && c.from.aligned(src):
		c.steps[0].run(dst, src)
	default:
		c.inPieces(dst, src)
	}
}

// piece is the number of elements to convert at a time if they need several steps or are not aligned.
const piece = 256

// A conversionBuffer holds numbers between the steps of a conversion, aligned for every type.
type conversionBuffer [2][piece]complex128

var conversionBuffers = sync.Pool{New: func() any { return new(conversionBuffer) }}

// inPieces converts some elements at a time through all steps, in aligned memory.
func (c *conversion) inPieces(dst, src []byte) {
	d := conversionBuffers.Get().(*conversionBuffer)
	defer conversionBuffers.Put(d)
	fromAligned, toAligned := c.from.aligned(src), c.to.aligned(dst)
	for len(src) > 0 {
		n := min(piece, len(src)>>c.from.shift)
		next := 0
		take := func(size int) []byte {
			b := unsafe.Slice((*byte)(unsafe.Pointer(&d[next])), n*size) // the memory of numbers that are no pointers
			next = 1 - next
			return b
		}
		in, out := src[:n<<c.from.shift], dst[:n<<c.to.shift]
		src, dst = src[len(in):], dst[len(out):]
		if !fromAligned {
			b := take(1 << c.from.shift)
			copy(b, in)
			in = b
		}
		for i, s := range c.steps {
			b := out
			if i < len(c.steps)-1 || !toAligned {
				b = take(s.to)
			}
			s.run(b, in)
			in = b
		}
		if !toAligned {
			copy(out, in)
		}
	}
}
