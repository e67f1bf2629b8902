package backend

import "fmt"

// A UnaryOp is a function of one element.
type UnaryOp uint8

// The functions of one element. "All" means Bool, integer and float types.
const (
	Neg         UnaryOp = iota // integer and float types
	Abs                        // integer and float types
	Sign                       // integer and float types: -1, 0 or 1; NaN for NaN (PyTorch: 0)
	Not                        // logical, all types: dst is Bool, x == 0
	Invert                     // bitwise, logical for Bool; Bool and integer types
	IsNaN                      // float types: dst is Bool
	IsInf                      // float types: dst is Bool
	Floor                      // float types, as all that follow
	Ceil                       //
	Round                      // ties to even
	Trunc                      //
	Sqrt                       //
	Rsqrt                      //
	Reciprocal                 //
	Square                     // integer types too
	Exp                        //
	Expm1                      //
	Log                        //
	Log1p                      //
	Log2                       //
	Log10                      //
	Sin                        //
	Cos                        //
	Tan                        //
	Tanh                       //
	Sigmoid                    // 1/(1+exp(-x))
	Relu                       // max(x, 0), NaN for NaN; integer types too
	Gelu                       // x*(1+erf(x/sqrt(2)))/2
	GeluTanh                   // the approximation of Gelu with tanh
	Silu                       // x*sigmoid(x)
	Erf                        //
	LastUnaryOp = Erf
)

var unaryNames = [...]string{
	"neg", "abs", "sign", "logical_not", "bitwise_not", "isnan", "isinf", "floor", "ceil", "round", "trunc", "sqrt",
	"rsqrt",
	"reciprocal", "square", "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "tanh", "sigmoid",
	"relu",
	"gelu", "gelu_tanh", "silu", "erf",
}

// String returns PyTorch's name.
func (op UnaryOp) String() string { return name(unaryNames[:], int(op)) }

// Predicate reports whether the result is Bool.
func (op UnaryOp) Predicate() bool { return op == Not || op == IsNaN || op == IsInf }

// A BinaryOp is a function of two elements.
type BinaryOp uint8

// The functions of two elements. "All" means Bool, integer and float types.
const (
	Add BinaryOp = iota // all; of Bool: or
	Sub                 // integer and float types
	Mul                 // all; of Bool: and
	Div                 // float types
	// integer and float types: rounded down, floats as Python's //; an integer divided by 0 is 0
	FloorDiv
	Mod // integer and float types: the sign of y, as Python's %; an integer modulo 0 is 0
	// integer and float types; integers wrap, a negative exponent gives 0 unless the base is 1 or -1
	Pow
	Maximum      // all; NaN if either is
	Minimum      // all; NaN if either is
	Atan2        // float types
	And          // bitwise; Bool and integer types
	Or           // bitwise; Bool and integer types
	Xor          // bitwise; Bool and integer types
	ShiftLeft    // integer types; by the width or more, or by a negative number: 0
	ShiftRight   // integer types, arithmetic if signed; by the width or more, or negative: 0 or -1
	LogicalAnd   // all; dst is Bool, as for all that follow
	LogicalOr    //
	LogicalXor   //
	Equal        // all
	NotEqual     //
	Less         //
	LessEqual    //
	Greater      //
	GreaterEqual //
	LastBinaryOp = GreaterEqual
)

var binaryNames = [...]string{
	"add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum", "atan2", "bitwise_and",
	"bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "logical_and", "logical_or",
	"logical_xor",
	"eq", "ne", "lt", "le", "gt", "ge",
}

// String returns PyTorch's name.
func (op BinaryOp) String() string { return name(binaryNames[:], int(op)) }

// Predicate reports whether the result is Bool.
func (op BinaryOp) Predicate() bool { return op >= LogicalAnd }

// A ReduceOp combines many elements into one.
type ReduceOp uint8

// The reductions.
const (
	Sum  ReduceOp = iota // x integer or Bool: dst Int64; x float: dst of its type. 0 if there are no elements
	Prod                 // likewise. 1 if there are no elements
	Mean                 // float types, dst of x's. NaN if there are no elements
	// Bool, integer and float types, dst of x's type; NaN if any element is. At least one element
	Max
	Min          // likewise
	Any          // all types: dst Bool
	AllTrue      // all types: dst Bool
	Norm2        // the square root of the sum of squares: float types, dst of x's
	LastReduceOp = Norm2
)

var reduceNames = [...]string{"sum", "prod", "mean", "amax", "amin", "any", "all", "norm"}

// String returns PyTorch's name.
func (op ReduceOp) String() string { return name(reduceNames[:], int(op)) }

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("operation %d", i)
}

// An IndexError reports an index out of range in queued work.
type IndexError struct {
	Op    string // "gather", "index_select", "scatter_add"
	Index int64  // the index
	Size  int64  // the length of the indexed axis
}

func (e *IndexError) Error() string {
	return fmt.Sprintf("compute: %s: index %d is out of range for an axis of length %d", e.Op, e.Index, e.Size)
}
