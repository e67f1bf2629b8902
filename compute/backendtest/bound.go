package backendtest

import "github.com/ashlar-go/ashlar/compute/backend"

// How many units in the last place (of float32, or of float64 in Float64) a function of one element may be off, before
// it is rounded to the type stored. The figures of CUDA's mathematical library (CUDA C++ programming guide,
// "Mathematical functions") are 1 or 2, for tan 4; as its authors measured rather than proved them, and a ulp is
// counted from the rounded result there, all have 4, which no careless implementation meets either. What is composed of
// several has more.
var unaryUlps = map[backend.UnaryOp]float64{
	backend.Rsqrt: 4, backend.Exp: 4, backend.Expm1: 4, backend.Log: 4, backend.Log1p: 4, backend.Log2: 4,
	backend.Log10: 4,
	backend.Sin:   4, backend.Cos: 4, backend.Tan: 5, backend.Tanh: 4, backend.Erf: 4,
	backend.Sigmoid: 8, backend.Gelu: 16, backend.GeluTanh: 16, backend.Silu: 8,
}

// Functions of two elements. CUDA 11's powf is 9 off at most.
var binaryUlps = map[backend.BinaryOp]float64{backend.Pow: 10, backend.Atan2: 4}

// cancelled is how many ulps of x are added for functions whose definition adds numbers that nearly cancel, 1+erf and
// 1+tanh, where x is far below 0.
const cancelled = 8
