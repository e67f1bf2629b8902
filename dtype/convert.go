package dtype

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"
)

// Convert converts the elements of src to dst, which has room for exactly as many and does not overlap it, and returns how
// many there are. Any alignment will do; that of the types is faster. It panics if the lengths do not fit or a type is none.
//
// Every pair of types has one result for every value:
//
//   - A number that the type has stays what it is; of a NaN see below.
//   - To a floating-point type: the nearest number, ties to even, rounded once. Beyond the greatest, where rounding says
//     so, it is infinity, and in Float8E4M3FN, which has none, NaN.
//   - A float to an integer: truncated toward zero, the least or the greatest integer if it is beyond them, 0 for NaN.
//   - An integer to a narrower one or one of the other sign: the low bits.
//   - To Bool: whether it is not 0, as NaN is not; a complex number is 0 if both parts are. From Bool: 0 or 1.
//   - A complex number to a real type: its real part. A real number to a complex type: the imaginary part is 0.
//   - A NaN to another floating-point format: the quiet NaN that has the same sign and no other bit of payload (0x7e00,
//     0x7fc0, 0x7f, 0x7fc00000, 0x7ff8000000000000). Where the format stays, its bits do.
//
// That is what PyTorch does, but where it has no one answer, or rounds twice:
//
//   - A float beyond the integers of a type is undefined in C++, and PyTorch's CPU and CUDA kernels differ from each other.
//     (For Uint8 PyTorch goes by way of int64 and wraps.) To saturate is what NVIDIA's own conversions do.
//   - PyTorch goes from Float64, and from Int64 and Int32, to Float16, BFloat16 and the 8-bit floats by way of float32, and
//     so rounds twice: 1+2^-11+2^-40 becomes 1 as a Float16, where the nearest is 1+2^-10.
//   - PyTorch makes NaNs of any bits and either sign in BFloat16.
//   - PyTorch 1.13 looks at nothing but the real part on the way to Bool; later versions look at both, as here.
func Convert(dst []byte, to DType, src []byte, from DType) (n int) {
	Converter(to, from)(dst, src)
	return len(src) / from.Size()
}

// ConvertSlice is Convert of slices of the same length: ConvertSlice(halves, floats) with halves of F16 rounds float32s.
func ConvertSlice[D, S Element](dst []D, src []S) {
	Converter(Of[D](), Of[S]())(bytesOf(dst), bytesOf(src))
}

// bytesOf returns the memory of s, which holds no pointers.
func bytesOf[T Element](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(zero))
}

// Converter returns the function that Convert calls, so that the pair of types is looked up once. The function
// may be called from many goroutines at once, and what memory it needs it takes from a pool. Converter panics if a type is
// none, and the function if the lengths do not fit.
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

// A conversion is what leads from one type to another.
type conversion struct {
	to, from end
	steps    []step // none if the types are the same
}

// An end of a conversion is a type, of 1<<shift bytes and some alignment: what short runs have no time to ask for.
type end struct {
	DType
	shift, align int
}

func newEnd(d DType) end { return end{d, bits.TrailingZeros(uint(d.Size())), goTypes[d].Align()} }

// aligned reports whether the memory can be seen as elements.
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

// piece is how many elements at a time take more than one step, or are not aligned.
const piece = 256

// A desk is the memory that numbers take between steps, aligned for every type.
type desk [2][piece]complex128

var desks = sync.Pool{New: func() any { return new(desk) }}

// inPieces takes some elements at a time through all steps, by way of aligned memory.
func (c *conversion) inPieces(dst, src []byte) {
	d := desks.Get().(*desk)
	defer desks.Put(d)
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
