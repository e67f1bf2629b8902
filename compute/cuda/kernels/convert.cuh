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

// finite is convert of an e4m3 that is no NaN, given as a number: all other types have those numbers, but integers.
template <class D> __device__ inline D finite(f32 x) {
    if constexpr (same<D, b8>) return b8{u8(x != 0)};
    else if constexpr (isInteger<D>) return truncateTo(D(), x);
    else if constexpr (same<D, bf16>) return bf16{u16(__float_as_uint(x) >> 16)};
    else if constexpr (same<D, f32> || same<D, f64>) return D(x);
    else return narrow<D>(x);
}

// halves makes the binary16s of two e4m3s, which are in the upper bytes of the halves of a word: the exponent's bias is 8
// less. They are no NaNs.
__device__ inline u32 halves(u32 x) {
    u32 h = (x & 0x80008000) | (x >> 1 & 0x3fff3fff);
    asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(h) : "r"(0x5c005c00)); // 2^8
    return h;
}

// convertAll converts n elements: e4m3s two at a time, unless there is a NaN.
template <class D, class S, int n> __device__ inline void convertAll(const S (&s)[n], D (&d)[n]) {
    if constexpr (same<S, e4m3>) {
        u32 word[(n + 3) / 4] = {}, nan = 0;
        memcpy(word, s, n);
#pragma unroll
        for (u32 w : word) nan |= (w & 0x7f7f7f7f) + 0x01010101;
        if (!(nan & 0x80808080)) {
#pragma unroll
            for (int v = 0; v < n; v += 2) {
                u32 h = halves(__byte_perm(word[v / 4], 0, v % 4 ? 0x3424 : 0x1404));
                if constexpr (same<D, f16>) d[v].bits = u16(h), d[v + 1].bits = u16(h >> 16);
                else d[v] = finite<D>(fromHalf(u16(h))), d[v + 1] = finite<D>(fromHalf(u16(h >> 16)));
            }
            return;
        }
    }
#pragma unroll
    for (int v = 0; v < n; v++) d[v] = convert<D>(s[v]);
}
