// Functions of two elements: binary_f32 and binary_walk_f32, and compare_f32 and compare_walk_f32 for those whose result is
// Bool. Operations have the numbers of backend.BinaryOp. Unsigned integers use the kernels of signed ones; where they
// differ, the number is 64 more. Greater is Less the other way round: binary.go. Bool is u8 here.
//
// types: i8 i16 i32 i64 f16 bf16 f32 f64
#include "elementwise.cuh"
#include "power.cuh"

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

LIGHT bool logical_and(N x, N y) { return x != 0 && y != 0; }
LIGHT bool logical_or(N x, N y) { return x != 0 || y != 0; }
LIGHT bool logical_xor(N x, N y) { return (x != 0) != (y != 0); }
LIGHT bool equal(N x, N y) { return x == y; }
LIGHT bool not_equal(N x, N y) { return x != y; }
LIGHT bool less(N x, N y) { return x < y; }
LIGHT bool less_equal(N x, N y) { return x <= y; }
#define COMPARISONS(X)                                                                                                   \
    X(15, logical_and) X(16, logical_or) X(17, logical_xor) X(18, equal) X(19, not_equal) X(20, less) X(21, less_equal)

#if KIND == 1
using U = typename Choose<same<T, i64>, u64, typename Choose<same<T, i32>, u32, typename Choose<same<T, i16>, u16, u8>::type>::type>::type;
constexpr int bits = 8 * sizeof(T);

LIGHT N add(N x, N y) { return N(U(x) + U(y)); }
LIGHT N sub(N x, N y) { return N(U(x) - U(y)); }
LIGHT N mul(N x, N y) { return N(u64(U(x)) * U(y)); } // through 64 bits: u16*u16 would be an int that overflows
HEAVY N floor_divide(N x, N y) {
    if (y == 0) return 0;
    if (y == -1) return N(-U(x)); // the least number wraps
    N q = x / y;
    return q * y != x && (x < 0) != (y < 0) ? q - 1 : q;
}
HEAVY N floor_divide_u(N x, N y) { return y == 0 ? 0 : N(U(x) / U(y)); }
HEAVY N mod(N x, N y) {
    if (y == 0 || y == -1) return 0;
    N r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
HEAVY N mod_u(N x, N y) { return y == 0 ? 0 : N(U(x) % U(y)); }
HEAVY N pow_u(N x, N y) {
    u64 r = 1, b = U(x);
    for (U e = U(y); e != 0; e >>= 1) {
        if (e & 1) r *= b;
        b *= b;
    }
    return N(r);
}
HEAVY N pow_(N x, N y) {
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    return pow_u(x, y);
}
LIGHT N maximum(N x, N y) { return x > y ? x : y; }
LIGHT N maximum_u(N x, N y) { return U(x) > U(y) ? x : y; }
LIGHT N minimum(N x, N y) { return x < y ? x : y; }
LIGHT N minimum_u(N x, N y) { return U(x) < U(y) ? x : y; }
LIGHT N and_(N x, N y) { return x & y; }
LIGHT N or_(N x, N y) { return x | y; }
LIGHT N xor_(N x, N y) { return x ^ y; }
LIGHT N left(N x, N y) { return U(y) < bits ? N(u64(U(x)) << U(y)) : 0; }
LIGHT N right(N x, N y) { return x >> (U(y) < bits ? U(y) : bits - 1); }
LIGHT N right_u(N x, N y) { return U(y) < bits ? N(U(x) >> U(y)) : 0; }
LIGHT bool less_u(N x, N y) { return U(x) < U(y); }
LIGHT bool less_equal_u(N x, N y) { return U(x) <= U(y); }
#define VALUES(X)                                                                                                        \
    X(0, add) X(1, sub) X(2, mul) X(4, floor_divide) X(68, floor_divide_u) X(5, mod) X(69, mod_u) X(6, pow_) X(70, pow_u) \
    X(7, maximum) X(71, maximum_u) X(8, minimum) X(72, minimum_u) X(10, and_) X(11, or_) X(12, xor_) X(13, left)         \
    X(14, right) X(78, right_u)
#define COMPARE(X) COMPARISONS(X) X(84, less_u) X(85, less_equal_u)
#else
// Single-precision functions have an f, double-precision ones have none.
#define PICK(name, ...) (sizeof(N) == 4 ? N(name##f(__VA_ARGS__)) : N(name(__VA_ARGS__)))
LIGHT N add(N x, N y) { return x + y; }
LIGHT N sub(N x, N y) { return x - y; }
LIGHT N mul(N x, N y) { return x * y; }
LIGHT N div_(N x, N y) { return x / y; }
// mod has the sign of y, as Python's: fmod is exact.
HEAVY N mod(N x, N y) {
    N r = PICK(fmod, x, y);
    if (r == 0) return PICK(copysign, r, y);
    return (r < 0) != (y < 0) ? r + y : r;
}
// floor_divide is Python's: what is left without the remainder is divided almost exactly.
HEAVY N floor_divide(N x, N y) {
    if (y == 0) return x / y;
    N r = PICK(fmod, x, y), q = (x - r) / y;
    if (r != 0 && (r < 0) != (y < 0)) q -= 1;
    if (q == 0) return PICK(copysign, N(0), x / y);
    N f = PICK(floor, q);
    return q - f > N(0.5) ? f + 1 : f;
}
HEAVY N library_pow(N x, N y) { return PICK(pow, x, y); }
HEAVY N atan2_(N x, N y) { return PICK(atan2, x, y); }
LIGHT N maximum(N x, N y) { return x > y || x != x ? x : y; }
LIGHT N minimum(N x, N y) { return x < y || x != x ? x : y; }
#define VALUES(X)                                                                                                        \
    X(0, add) X(1, sub) X(2, mul) X(3, div_) X(4, floor_divide) X(5, mod) X(7, maximum) X(8, minimum) X(9, atan2_)
#define COMPARE(X) COMPARISONS(X)

// raise is pow of n elements: of float32 the library's only if one of them is no plain one.
template <int n> LIGHT void raise(N (&x)[n], const N (&y)[n]) {
    if constexpr (sizeof(N) == 4) {
        bool plain = true;
#pragma unroll
        for (int v = 0; v < n; v++) plain &= power::plain(x[v], y[v]);
        if (plain) {
#pragma unroll
            for (int v = 0; v < n; v++) x[v] = power::of(x[v], y[v]);
            return;
        }
    }
#pragma unroll
    for (int v = 0; v < n; v++) x[v] = library_pow(x[v], y[v]);
}
#endif

// The elements of a vector: fewer of the smallest types, for the size of the code.
constexpr int V = sizeof(T) == 1 ? 8 : 16 / sizeof(T);

struct Values {
    u32 op;
    template <class P> __device__ void operator()(P &p) const {
        constexpr int n = P::n;
        N x[n], y[n];
#pragma unroll
        for (int v = 0; v < n; v++) x[v] = p.a.number(v), y[v] = p.b.number(v);
        switch (op) {
#define CASE(op, f)                                                                                                      \
    case op:                                                                                                             \
        _Pragma("unroll") for (int v = 0; v < n; v++) x[v] = f(x[v], y[v]);                                              \
        break;
            VALUES(CASE)
#if KIND == 2
        case 6: raise(x, y); break;
#endif
        }
        p.d.set(x);
    }
};

struct Comparisons {
    u32 op;
    template <class P> __device__ void operator()(P &p) const {
        constexpr int n = P::n;
        switch (op) {
#define TEST(op, f)                                                                                                      \
    case op:                                                                                                             \
        _Pragma("unroll") for (int v = 0; v < n; v++) p.d.e[v] = b8{u8(f(p.a.number(v), p.b.number(v)))};            \
        break;
            COMPARE(TEST)
        }
    }
};

KERNEL(binary)(const __grid_constant__ Operands p) { vectors<V, 2, T, T, T>(p, Values{p.op}); }
KERNEL(binary_walk)(const __grid_constant__ Operands p) { walk<T, T, T>(p, Values{p.op}); }
KERNEL(compare)(const __grid_constant__ Operands p) { vectors<V, 2, b8, T, T>(p, Comparisons{p.op}); }
KERNEL(compare_walk)(const __grid_constant__ Operands p) { walk<b8, T, T>(p, Comparisons{p.op}); }
