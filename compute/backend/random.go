package backend

// A Distribution selects the kind of random numbers.
type Distribution uint8

// The distributions.
const (
	Uniform  Distribution = iota // Low <= x < High; float types
	Normal                       // mean Low, standard deviation High; float types
	Integers                     // LowInt <= x < HighInt, at most 2^63 apart; integer types and Bool
)

// Random determines random numbers by counting. The element with the linear (row-major) index i uses block Offset+i of
// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the key
// Seed. Elements are therefore independent of each other, and every backend makes the same bits: the following is
// computed in float64 by additions, multiplications, divisions and square roots only, none of them fused.
//
//   - Block: the counter is the 64-bit number Offset+i in words 0 and 1, low first, and words 2 and 3 are 0; the key is
//     Seed, low word first. Ten rounds give words w0..w3.
//   - Uniform: u = ((w0 | w1<<32) >> 11) * 2^-53; the element is Low + u*(High-Low), rounded to the type. If rounding
//     makes it High (and Low < High), it is the largest value of the type below High instead.
//   - Normal: p = (((w0 | w1<<32) >> 12) + 0.5) * 2^-52, then Low + High*z(p), rounded to the type, where z is the
//     inverse of the normal distribution by Wichura's algorithm AS 241 (PPND16), whose logarithm is ExactLog in this
//     package.
//   - Integers: with span = HighInt-LowInt, LowInt + the upper 64 bits of the product of (w0 | w1<<32) and span.
type Random struct {
	Distribution    Distribution
	Seed, Offset    uint64
	Low, High       float64
	LowInt, HighInt int64
}
