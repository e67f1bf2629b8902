// One element as another type, bit for bit as package dtype's Convert does it: see there for the rules.
#pragma once
#include "element.cuh"

// signOf is the sign of a float, in bit 31.
__device__ inline u32 signOf(f16 x) { return u32(x.bits) << 16 & 0x80000000; }
__device__ inline u32 signOf(bf16 x) { return u32(x.bits) << 16 & 0x80000000; }
__device__ inline u32 signOf(e5m2 x) { return u32(x.bits) << 24 & 0x80000000; }
__device__ inline u32 signOf(e4m3 x) { return u32(x.bits) << 24 & 0x80000000; }
__device__ inline u32 signOf(f32 x) { return __float_as_uint(x) & 0x80000000; }
__device__ inline u32 signOf(f64 x) { return u32(__double2hiint(x)) & 0x80000000; }

// odd rounds to the float32 toward zero, with the last bit set if anything was cut off: rounding that to a narrower format
// is rounding x.
__device__ inline f32 odd(f32 y, bool inexact) { return fromBits(__float_as_uint(y) | inexact); }
__device__ inline f32 odd(f64 x) {
    f32 y = __double2float_rz(x);
    return odd(y, f64(y) != x);
}
__device__ inline f32 odd(i64 x) {
    f32 y = __ll2float_rz(x);
    return odd(y, __float2ll_rz(y) != x);
}
__device__ inline f32 odd(u64 x) {
    f32 y = __ull2float_rz(x);
    return odd(y, __float2ull_rz(y) != x);
}
__device__ inline f32 odd(i32 x) {
    f32 y = __int2float_rz(x);
    return odd(y, __float2int_rz(y) != x);
}
__device__ inline f32 odd(u32 x) {
    f32 y = __uint2float_rz(x);
    return odd(y, __float2uint_rz(y) != x);
}

// truncate goes toward zero; beyond the integers of the type it is the least or the greatest. x is no NaN.
__device__ inline i32 truncateTo(i32, f32 x) { return __float2int_rz(x); }
__device__ inline i32 truncateTo(i32, f64 x) { return __double2int_rz(x); }
__device__ inline u32 truncateTo(u32, f32 x) { return __float2uint_rz(x); }
__device__ inline u32 truncateTo(u32, f64 x) { return __double2uint_rz(x); }
__device__ inline i64 truncateTo(i64, f32 x) { return __float2ll_rz(x); }
__device__ inline i64 truncateTo(i64, f64 x) { return __double2ll_rz(x); }
__device__ inline u64 truncateTo(u64, f32 x) { return __float2ull_rz(x); }
__device__ inline u64 truncateTo(u64, f64 x) { return __double2ull_rz(x); }
template <class F> __device__ inline i8 truncateTo(i8, F x) { return i8(min(max(truncateTo(i32(), x), -128), 127)); }
template <class F> __device__ inline u8 truncateTo(u8, F x) { return u8(min(max(truncateTo(i32(), x), 0), 255)); }
template <class F> __device__ inline i16 truncateTo(i16, F x) { return i16(min(max(truncateTo(i32(), x), -32768), 32767)); }
template <class F> __device__ inline u16 truncateTo(u16, F x) { return u16(min(max(truncateTo(i32(), x), 0), 65535)); }

// nan is that of a format, with a sign in bit 31.
template <class D> __device__ inline D nan(u32 sign);
template <> __device__ inline f16 nan<f16>(u32 sign) { return f16{u16(sign >> 16 | 0x7e00)}; }
template <> __device__ inline bf16 nan<bf16>(u32 sign) { return bf16{u16(sign >> 16 | 0x7fc0)}; }

template <class D, class S> __device__ inline D convert(S s) {
    auto x = widen(s);
    if constexpr (same<D, b8>) {
        return b8{u8(x != 0)};
    } else if constexpr (isInteger<S>) {
        if constexpr (isNarrow<D> && sizeof(S) >= 4) return narrow<D>(odd(x));
        else if constexpr (isNarrow<D>) return narrow<D>(f32(x));
        else return D(x);
    } else if constexpr (isInteger<D>) {
        return x != x ? D(0) : truncateTo(D(), x);
    } else if constexpr (same<D, f64>) {
        return x != x ? __hiloint2double(int(signOf(s) | 0x7ff80000), 0) : f64(x);
    } else if constexpr (same<D, f32>) {
        return x != x ? fromBits(signOf(s) | quietNaN) : f32(x);
    } else if constexpr (same<D, bf16> && sizeof(S) == 1) { // has all of their numbers
        return x != x ? nan<D>(signOf(s)) : bf16{u16(__float_as_uint(x) >> 16)};
    } else if constexpr (sizeof(D) == 1) { // narrow keeps the sign of a NaN, as widen does of some types
        f32 y;
        if constexpr (same<S, f64>) y = odd(x);
        else y = x;
        if constexpr (!same<S, f32> && !same<S, bf16> && !same<S, e4m3>) y = x != x ? fromBits(signOf(s) | quietNaN) : y;
        return narrow<D>(y);
    } else if constexpr (same<S, f64>) {
        return x != x ? nan<D>(signOf(s)) : narrow<D>(odd(x));
    } else {
        return x != x ? nan<D>(signOf(s)) : narrow<D>(x);
    }
}
