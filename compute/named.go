package compute

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/tensor"
)

// The common functions by name. Each is Unary or Binary with the operation of that name in package backend, which
// documents the types and the special cases.

// Neg returns -x, for each element.
func Neg(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Neg, x)
}

// Abs returns the absolute value of x, for each element.
func Abs(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Abs, x)
}

// Sign returns -1, 0 or 1 by the sign of x, for each element.
func Sign(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Sign, x)
}

// Not returns whether x is zero, for each element.
func Not(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Not, x)
}

// IsNaN returns whether x is not a number, for each element.
func IsNaN(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.IsNaN, x)
}

// IsInf returns whether x is infinite, for each element.
func IsInf(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.IsInf, x)
}

// Floor returns x rounded down, for each element.
func Floor(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Floor, x)
}

// Ceil returns x rounded up, for each element.
func Ceil(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Ceil, x)
}

// Round returns x rounded, ties to even, for each element.
func Round(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Round, x)
}

// Trunc returns x rounded toward zero, for each element.
func Trunc(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Trunc, x)
}

// Sqrt returns the square root of x, for each element.
func Sqrt(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Sqrt, x)
}

// Rsqrt returns 1/sqrt(x), for each element.
func Rsqrt(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Rsqrt, x)
}

// Reciprocal returns 1/x, for each element.
func Reciprocal(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Reciprocal, x)
}

// Square returns x*x, for each element.
func Square(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Square, x)
}

// Exp returns e to the x, for each element.
func Exp(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Exp, x)
}

// Expm1 returns e to the x, less 1, for each element.
func Expm1(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Expm1, x)
}

// Log returns the natural logarithm of x, for each element.
func Log(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Log, x)
}

// Log1p returns the natural logarithm of 1+x, for each element.
func Log1p(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Log1p, x)
}

// Log2 returns the logarithm of x to base 2, for each element.
func Log2(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Log2, x)
}

// Log10 returns the logarithm of x to base 10, for each element.
func Log10(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Log10, x)
}

// Sin returns the sine of x, for each element.
func Sin(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Sin, x)
}

// Cos returns the cosine of x, for each element.
func Cos(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Cos, x)
}

// Tan returns the tangent of x, for each element.
func Tan(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Tan, x)
}

// Tanh returns the hyperbolic tangent of x, for each element.
func Tanh(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Tanh, x)
}

// Sigmoid returns 1/(1+exp(-x)), for each element.
func Sigmoid(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Sigmoid, x)
}

// Relu returns x, but zero for less, for each element.
func Relu(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Relu, x)
}

// Gelu returns x times the normal distribution function of x, for each element.
func Gelu(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Gelu, x)
}

// Silu returns x*Sigmoid(x), for each element.
func Silu(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Silu, x)
}

// Erf returns the error function of x, for each element.
func Erf(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Erf, x)
}

// Add returns x+y, for each pair of elements.
func Add(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Add, x, y)
}

// Sub returns x-y, for each pair of elements.
func Sub(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Sub, x, y)
}

// Mul returns x*y, for each pair of elements.
func Mul(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Mul, x, y)
}

// Div returns x/y, in a floating-point type, for each pair of elements.
func Div(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Div, x, y)
}

// FloorDiv returns x/y rounded down, for each pair of elements.
func FloorDiv(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.FloorDiv, x, y)
}

// Mod returns the remainder of x/y, with the sign of y, for each pair of elements.
func Mod(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Mod, x, y)
}

// Pow returns x to the y, for each pair of elements.
func Pow(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Pow, x, y)
}

// Maximum returns the greater of x and y; NaN if either is, for each pair of elements.
func Maximum(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Maximum, x, y)
}

// Minimum returns the lesser of x and y; NaN if either is, for each pair of elements.
func Minimum(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Minimum, x, y)
}

// Equal returns whether x and y are equal, for each pair of elements.
func Equal(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Equal, x, y)
}

// NotEqual returns whether x and y differ, for each pair of elements.
func NotEqual(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.NotEqual, x, y)
}

// Less returns whether x is less than y, for each pair of elements.
func Less(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Less, x, y)
}

// LessEqual returns whether x is at most y, for each pair of elements.
func LessEqual(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.LessEqual, x, y)
}

// Greater returns whether x is greater than y, for each pair of elements.
func Greater(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Greater, x, y)
}

// GreaterEqual returns whether x is at least y, for each pair of elements.
func GreaterEqual(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.GreaterEqual, x, y)
}

// Atan2 returns the angle whose tangent is x/y, in the quadrant of their signs, for each pair of elements.
func Atan2(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Atan2, x, y)
}

// BitwiseAnd returns the bits that x and y have both, for each pair of elements.
func BitwiseAnd(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.And, x, y)
}

// BitwiseOr returns the bits that x or y has, for each pair of elements.
func BitwiseOr(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Or, x, y)
}

// BitwiseXor returns the bits in which x and y differ, for each pair of elements.
func BitwiseXor(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.Xor, x, y)
}

// ShiftLeft returns x shifted left by y bits, for each pair of elements.
func ShiftLeft(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.ShiftLeft, x, y)
}

// ShiftRight returns x shifted right by y bits, for each pair of elements.
func ShiftRight(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.ShiftRight, x, y)
}

// LogicalAnd returns whether x and y both are not zero, for each pair of elements.
func LogicalAnd(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.LogicalAnd, x, y)
}

// LogicalOr returns whether x or y is not zero, for each pair of elements.
func LogicalOr(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.LogicalOr, x, y)
}

// LogicalXor returns whether one of x and y is zero and the other not, for each pair of elements.
func LogicalXor(p *tensor.Place, x, y Operand) (*tensor.Tensor, error) {
	return Binary(p, backend.LogicalXor, x, y)
}

// Invert returns x with all bits inverted, for each element; for bools, whether x is false.
func Invert(p *tensor.Place, x *tensor.Tensor) (*tensor.Tensor, error) {
	return Unary(p, backend.Invert, x)
}
