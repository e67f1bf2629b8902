package host

import "github.com/ashlar-go/ashlar/dtype"

// Conversions of contiguous elements, with the same bits as package dtype's, NaNs included. dst and src have the same
// length. Those of binary16 use F16C and those of bfloat16 AVX2, if the processor has them.

// vecWidenF16 converts binary16 to float32.
func vecWidenF16(dst []float32, src []uint16) {
	n := 0
	if hasAVX2 && len(src) >= 16 {
		n = len(src) &^ 15
		widenF16(&dst[:n][0], &src[0], n)
	}
	for i, h := range src[n:] {
		dst[n+i] = dtype.F16(h).Float32()
	}
}

// vecRoundF16 rounds float32 to binary16.
func vecRoundF16(dst []uint16, src []float32) {
	n := 0
	if hasAVX2 && len(src) >= 16 {
		n = len(src) &^ 15
		roundF16(&dst[:n][0], &src[0], n)
	}
	for i, x := range src[n:] {
		dst[n+i] = uint16(dtype.ToF16(x))
	}
}

// vecWidenBF16 converts bfloat16 to float32.
func vecWidenBF16(dst []float32, src []uint16) {
	n := 0
	if hasAVX2 && len(src) >= 16 {
		n = len(src) &^ 15
		widenBF16(&dst[:n][0], &src[0], n)
	}
	for i, h := range src[n:] {
		dst[n+i] = dtype.BF16(h).Float32()
	}
}

// vecRoundBF16 rounds float32 to bfloat16.
func vecRoundBF16(dst []uint16, src []float32) {
	n := 0
	if hasAVX2 && len(src) >= 16 {
		n = len(src) &^ 15
		roundBF16(&dst[:n][0], &src[0], n)
	}
	for i, x := range src[n:] {
		dst[n+i] = uint16(dtype.ToBF16(x))
	}
}
