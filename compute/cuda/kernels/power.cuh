// x^y in float32, to 6 units in the last place if the device's approximations are as far off as they may be, else to 2. It takes half the instructions of the library's, which bounds the rate of
// pow; that one has the numbers that seldom come (plain).
//
// |x|^y is 2^(y*log2(|x|)). The product may be 128, so the logarithm is a sum of two float32s, high and low. With |x| =
// 2^e*m, m from sqrt(1/2) to sqrt(2), and q = (m-1)/(m+1), it is e + 2/ln(2) * atanh(q), and atanh(q) is q + q^3*P(q^2).
#pragma once
#include "element.cuh"

namespace power {

// plain reports whether of() knows x^y: x is normal, and y is no larger than what tells odd from even below.
__device__ inline bool plain(f32 x, f32 y) {
    return (__float_as_uint(x) & 0x7fffffff) - 0x00800000u < 0x7f000000u && fabsf(y) < 0x1p22f;
}

__device__ inline f32 of(f32 x, f32 y) {
    const u32 bits = __float_as_uint(x) & 0x7fffffff;
    const u32 above = (bits - 0x3f3504f3u) & 0xff800000; // e, in the place of the exponent
    const f32 m = fromBits(bits - above), e = f32(i32(above)) * 0x1p-23f;
    const f32 less = m - 1.0f;
    f32 inverse; // of m+1
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(m + 1.0f));
    const f32 q = less * inverse, qLow = inverse * __fmaf_rn(q, -less, __fmaf_rn(q, -2.0f, less));

    const f32 s = q * q;
    f32 p = __fmaf_rn(0.1293334961f, s, 0.1419928074f);
    p = __fmaf_rn(p, s, 0.2000148296f);
    p = __fmaf_rn(p, s, 0.3333332539f);
    const f32 rest = __fmaf_rn(p * s, q, __fmaf_rn(qLow, s, qLow)); // atanh(q+qLow) is q+rest

    constexpr f32 c = 2.88539008f, cLow = 3.8519753e-8f; // 2/ln(2)
    const f32 first = c * q;
    f32 low = __fmaf_rn(c, rest, __fmaf_rn(cLow, q, __fmaf_rn(c, q, -first)));
    f32 high = e + first; // |e| is 0 or more than |first|
    low += first - (high - e);
    const f32 sum = high + low;
    low -= sum - high, high = sum;

    const f32 t = high * y, tLow = __fmaf_rn(low, y, __fmaf_rn(high, y, -t));
    f32 r;
    asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(t));
    if (t < 128.0f) r = __fmaf_rn(r * 0.693147181f, tLow, r); // else it is infinite

    const f32 shifted = y + 0x1.8p23f; // whole numbers are in its lowest bits
    if (x < 0) r = shifted - 0x1.8p23f == y ? fromBits(__float_as_uint(r) ^ __float_as_uint(shifted) << 31) : fromBits(quietNaN);
    return r;
}

} // namespace power
