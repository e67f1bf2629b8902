// Elements: a C++ type for every dtype, under the names that kernels carry (b8, i8 ... e4m3), and how each is read as a
// number that arithmetic is done in. Nothing here needs more than compute capability 7.0.
#pragma once
#include <cstdint>

using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = long long; // as the device functions spell it
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

struct b8 { u8 bits; };   // 0 or 1
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct e5m2 { u8 bits; };
struct e4m3 { u8 bits; };
struct alignas(8) c64 { f32 re, im; };
struct alignas(16) c128 { f64 re, im; };

// The kernel k of the type that the module is compiled for: KERNEL(sum) is sum_f32 in the module of -DELEMENT=f32.
#define GLUE2(a, b) a##_##b
#define GLUE(a, b) GLUE2(a, b)
#define KERNEL(name) extern "C" __global__ void GLUE(name, ELEMENT)

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool same = Same<A, B>::value;
template <bool C, class A, class B> struct Choose { using type = A; };
template <class A, class B> struct Choose<false, A, B> { using type = B; };

template <class T> constexpr bool isSigned = same<T, i8> || same<T, i16> || same<T, i32> || same<T, i64>;
template <class T> constexpr bool isUnsigned = same<T, u8> || same<T, u16> || same<T, u32> || same<T, u64>;
template <class T> constexpr bool isInteger = isSigned<T> || isUnsigned<T>;
template <class T> constexpr bool isFloat = same<T, f16> || same<T, bf16> || same<T, f32> || same<T, f64>; // not the 8-bit ones
template <class T> constexpr bool isNarrow = same<T, f16> || same<T, bf16> || same<T, e5m2> || same<T, e4m3>;
template <class T> constexpr bool isComplex = same<T, c64> || same<T, c128>;

// Number is what arithmetic on elements of type T is done in: float for what is narrower, bool for Bool, else T itself.
template <class T> using Number = typename Choose<isNarrow<T>, f32, typename Choose<same<T, b8>, bool, T>::type>::type;

constexpr u32 quietNaN = 0x7fc00000;

__device__ inline f32 fromBits(u32 b) { return __uint_as_float(b); }

// fromHalf and towardZero are conversions from and to the bits of binary16.
__device__ inline f32 fromHalf(u16 h) {
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
    return y;
}
__device__ inline u16 towardZero(f32 x) {
    u16 h;
    asm("cvt.rz.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

// oddHalf rounds to binary16 toward zero, with the last bit set if anything was cut off, and leaves out the sign: rounding
// that to a narrower format is rounding x.
__device__ inline u32 oddHalf(f32 x) {
    u16 h = towardZero(x);
    return (h & 0x7fff) | (fromHalf(h) != x);
}

// widen reads an element as a number. A NaN stays one, with any payload.
template <class T> __device__ inline T widen(T x) { return x; }
__device__ inline bool widen(b8 x) { return x.bits != 0; }
__device__ inline f32 widen(f16 x) { return fromHalf(x.bits); }
__device__ inline f32 widen(bf16 x) { return fromBits(u32(x.bits) << 16); }
__device__ inline f32 widen(e5m2 x) { return fromHalf(u16(x.bits) << 8); } // the upper half of a binary16
__device__ inline f32 widen(e4m3 x) { // the exponent's bias is 120 less
    u32 sign = u32(x.bits & 0x80) << 24, a = x.bits & 0x7f;
    return a == 0x7f ? fromBits(sign | quietNaN) : fromBits(sign | a << 20) * 0x1p+120f;
}

// narrow rounds a number to an element: to nearest, ties to even. A NaN becomes one, with any payload.
template <class T> __device__ inline T narrow(Number<T> x) { return x; }
template <> __device__ inline b8 narrow<b8>(bool x) { return b8{u8(x)}; }
template <> __device__ inline f16 narrow<f16>(f32 x) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return f16{h};
}
template <> __device__ inline bf16 narrow<bf16>(f32 x) {
    u32 b = __float_as_uint(x);
    return bf16{u16((x != x ? quietNaN : b + 0x7fff + (b >> 16 & 1)) >> 16)};
}
template <> __device__ inline e5m2 narrow<e5m2>(f32 x) {
    u32 sign = __float_as_uint(x) >> 24 & 0x80, h = oddHalf(x), r = (h + 0x7f + (h >> 8 & 1)) >> 8;
    return e5m2{u8(sign | (x != x ? 0x7f : r))};
}
template <> __device__ inline e4m3 narrow<e4m3>(f32 x) { // what is too large is the NaN, as NaNs are
    u32 sign = __float_as_uint(x) >> 24 & 0x80, h = oddHalf(x * 0x1p-8f), r = (h + 0x3f + (h >> 7 & 1)) >> 7;
    return e4m3{u8(sign | min(r, 0x7f))};
}
