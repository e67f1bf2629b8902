// Functions of one element: unary_f32 and unary_walk_f32, and predicate_f32 and predicate_walk_f32 for those whose result
// is Bool. Unsigned integers use the kernels of signed ones, and have a sign of their own: unary.go.
//
// types: i8 i16 i32 i64 f16 bf16 f32 f64
#include "elementwise.cuh"
#include "narrow.cuh"

#define HEAVY __device__ __noinline__ static
#define LIGHT __device__ inline static

using T = ELEMENT;
using N = Number<T>;

#define KIND_i8 1
#define KIND_i16 1
#define KIND_i32 1
#define KIND_i64 1
#define KIND_f16 2
#define KIND_bf16 2
#define KIND_f32 2
#define KIND_f64 2
#define KIND GLUE(KIND, ELEMENT)

// Types of 16 bits have formulas of their own.
#define NARROW_f16 1
#define NARROW_bf16 1
#define NARROW GLUE(NARROW, ELEMENT)

// Functions that take some instructions are there once; MEDIUM ones do so for double.
#define MEDIUM_f16 LIGHT
#define MEDIUM_bf16 LIGHT
#define MEDIUM_f32 LIGHT
#define MEDIUM_f64 HEAVY
#define MEDIUM GLUE(MEDIUM, ELEMENT)

#if KIND == 1
using U = typename Choose<same<T, i64>, u64, typename Choose<same<T, i32>, u32, typename Choose<same<T, i16>, u16, u8>::type>::type>::type;
LIGHT N neg(N x) { return N(-U(x)); }
LIGHT N abs_(N x) { return x < 0 ? neg(x) : x; }
LIGHT N sign(N x) { return N((x > 0) - (x < 0)); }
LIGHT N sign_u(N x) { return x != 0; }
LIGHT N bitwise_not(N x) { return ~x; }
LIGHT N square(N x) { return N(u64(x) * u64(x)); }
LIGHT N relu(N x) { return x > 0 ? x : 0; }
LIGHT bool logical_not(N x) { return x == 0; }
#define VALUES(X) X(0, neg) X(1, abs_) X(2, sign) X(3, sign_u) X(4, bitwise_not) X(14, square) X(26, relu)
#define PREDICATES(X) X(3, logical_not)
#else
// Single-precision functions have an f, double-precision ones have none.
#define PICK(name, x) (sizeof(N) == 4 ? N(name##f(x)) : N(name(x)))
LIGHT N neg(N x) { return -x; }
LIGHT N abs_(N x) { return PICK(fabs, x); }
LIGHT N sign(N x) { return x > 0 ? N(1) : x < 0 ? N(-1) : x != x ? x : N(0); }
LIGHT N floor_(N x) { return PICK(floor, x); }
LIGHT N ceil_(N x) { return PICK(ceil, x); }
LIGHT N round_(N x) { return PICK(rint, x); }
LIGHT N trunc_(N x) { return PICK(trunc, x); }
LIGHT N square(N x) { return x * x; }
LIGHT N relu(N x) { return x > 0 || x != x ? x : N(0); }
LIGHT bool logical_not(N x) { return x == 0; }
LIGHT bool isnan_(N x) { return x != x; }
LIGHT bool isinf_(N x) { return PICK(fabs, x) == N(INFINITY); }
LIGHT N exp__(N x) { return PICK(exp, x); }
LIGHT N sqrt_(N x) { return PICK(sqrt, x); }
MEDIUM N rsqrt_(N x) { return PICK(rsqrt, x); }
LIGHT N reciprocal(N x) { return N(1) / x; }
MEDIUM N exp_(N x) { return exp__(x); }
HEAVY N expm1_(N x) { return PICK(expm1, x); }
HEAVY N log_(N x) { return PICK(log, x); }
HEAVY N log1p_(N x) { return PICK(log1p, x); }
HEAVY N log2_(N x) { return PICK(log2, x); }
HEAVY N log10_(N x) { return PICK(log10, x); }
HEAVY N sin_(N x) { return PICK(sin, x); }
HEAVY N cos_(N x) { return PICK(cos, x); }
HEAVY N tan_(N x) { return PICK(tan, x); }
#if NARROW
LIGHT N tanh_(N x) { return narrowly::tanh(x); }
LIGHT N sigmoid(N x) { return narrowly::sigmoid(x); }
LIGHT N gelu(N x) { return narrowly::gelu(x); }
LIGHT N gelu_tanh(N x) { return narrowly::gelu_tanh(x); }
LIGHT N silu(N x) { return narrowly::silu(x); }
LIGHT N erf_(N x) { return narrowly::erf(x); }
#else
// quick divides with an error of 2 units in the last place, where there is such a way.
LIGHT N quick(N x, N y) { return sizeof(N) == 4 ? N(__fdividef(x, y)) : x / y; }
MEDIUM N tanh_(N x) { return PICK(tanh, x); }
MEDIUM N sigmoid(N x) { return quick(N(1), N(1) + exp__(-x)); }
MEDIUM N gelu(N x) {
    constexpr N r = 0.70710678118654752440; // 1/sqrt(2)
    // By erfc it keeps its precision where erf is near -1; in float32 that takes twice as long.
    if (sizeof(N) == 8) return N(0.5) * x * N(erfc(x * -r));
    return N(0.5) * x * (1 + N(erff(x * r)));
}
MEDIUM N gelu_tanh(N x) { // 1+tanh(t) is 2*sigmoid(2t)
    N t = N(1.5957691216057307117) * (x + N(0.044715) * x * x * x);
    return quick(x, N(1) + exp__(-t));
}
MEDIUM N silu(N x) { return quick(x, N(1) + exp__(-x)); }
HEAVY N erf_(N x) { return PICK(erf, x); }
#endif
#define VALUES(X)                                                                                                        \
    X(0, neg) X(1, abs_) X(2, sign) X(7, floor_) X(8, ceil_) X(9, round_) X(10, trunc_) X(11, sqrt_) X(12, rsqrt_)       \
    X(13, reciprocal) X(14, square) X(15, exp_) X(16, expm1_) X(17, log_) X(18, log1p_) X(19, log2_) X(20, log10_)       \
    X(21, sin_) X(22, cos_) X(23, tan_) X(24, tanh_) X(25, sigmoid) X(26, relu) X(27, gelu) X(28, gelu_tanh) X(29, silu) \
    X(30, erf_)
#define PREDICATES(X) X(3, logical_not) X(5, isnan_) X(6, isinf_)
#endif

// The elements of a vector.
constexpr int V = 16 / sizeof(T);

struct Values {
    u32 op;
    template <class P> __device__ void operator()(P &p) const {
        constexpr int n = P::n;
        N x[n];
#pragma unroll
        for (int v = 0; v < n; v++) x[v] = p.a.number(v);
        switch (op) {
#define CASE(op, f)                                                                                                      \
    case op:                                                                                                             \
        _Pragma("unroll") for (int v = 0; v < n; v++) x[v] = f(x[v]);                                                    \
        break;
            VALUES(CASE)
        }
        p.d.set(x, isNarrow<T> && op >= 24); // tanh and those after it; relu among them needs no rounding
    }
};

struct Predicates {
    u32 op;
    template <class P> __device__ void operator()(P &p) const {
        constexpr int n = P::n;
        switch (op) {
#define TEST(op, f)                                                                                                      \
    case op:                                                                                                             \
        _Pragma("unroll") for (int v = 0; v < n; v++) p.d.e[v] = b8{u8(f(p.a.number(v)))};                             \
        break;
            PREDICATES(TEST)
        }
    }
};

KERNEL(unary)(const __grid_constant__ Operands p) { vectors<V, 4, T, T>(p, Values{p.op}); }
KERNEL(unary_walk)(const __grid_constant__ Operands p) { walk<T, T>(p, Values{p.op}); }
KERNEL(predicate)(const __grid_constant__ Operands p) { vectors<V, 4, b8, T>(p, Predicates{p.op}); }
KERNEL(predicate_walk)(const __grid_constant__ Operands p) { walk<b8, T>(p, Predicates{p.op}); }
