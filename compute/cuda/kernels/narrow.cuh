// Functions whose results are rounded to 16 bits. Their instructions are what bounds their rate: in the time that memory
// takes for an element of 2 bytes, an H200 does 28, and half of those go into moving it. So these are made of the device's
// approximate 2^x and 1/x, off by 2 units in the last place of float32 and by 1, and of polynomials (minimax, fitted in
// double precision). Before they are rounded they are within 2^-8 units in the last place of the type, but for what is said
// at normal; TestGPUNarrow holds all numbers against that.
#pragma once
#include "element.cuh"

// What is less than 2^-126 is 0, as it is for __fdividef beyond 2^126.
__device__ inline f32 power2(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline f32 inverse(f32 x) {
    f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// logistic is 1/(1+2^x).
__device__ inline f32 logistic(f32 x) { return inverse(1.0f + power2(x)); }

// e^x is 2^(x*log2e). The product is rounded, so far from 0 that is off by more: e^-80 by 20 units in the last place of
// float32, which is nothing to bfloat16; and float16 does not get there.
constexpr f32 log2e = 1.44269504088896340736f;

template <int n> __device__ inline f32 polynomial(f32 x, const f32 (&c)[n]) {
    f32 y = c[n - 1];
#pragma unroll
    for (int i = n - 2; i >= 0; i--) y = __fmaf_rn(y, x, c[i]);
    return y;
}

// normal makes logistic the distribution function f of the standard normal distribution: logistic(normal(x)) is
// (1+erf(x/sqrt(2)))/2. It is log2(1/f(x)-1), of which the quotient by x is a polynomial of x^2. That times x is off by so
// little that f is right to 2^-23 of the larger of f and, in the lower tail, 1e-4; beyond 5.6 the tail is too thick.
__device__ inline f32 normal(f32 x) {
    constexpr f32 c[] = {-2.3022093773f, -0.10483311117f, 9.0202200226e-05f, 1.6198323283e-04f,
                         -1.2072644494e-05f, 4.5746537580e-07f, -9.0617877646e-09f, 7.3693467995e-11f};
    return x * polynomial(fminf(x * x, 31.36f), c);
}

namespace narrowly {

__device__ inline f32 sigmoid(f32 x) { return logistic(x * -log2e); }
__device__ inline f32 silu(f32 x) { return x * sigmoid(x); }

// gelu is x*f(x), f as above: far below 0 its error is relative to x, as that of x*(1+erf)/2 is.
__device__ inline f32 gelu(f32 x) { return x * logistic(normal(x)); }
__device__ inline f32 gelu_tanh(f32 x) { // (1+tanh(t))/2 is 1/(1+exp(-2t))
    constexpr f32 c = -1.5957691216057307117f * log2e;
    return x * logistic(x * __fmaf_rn(c * 0.044715f, x * x, c));
}

// Near 0, where 1-2/(1+2^x) cancels, tanh and erf are polynomials.
__device__ inline f32 tanh(f32 x) {
    constexpr f32 c[] = {-0.33333143592f, 0.13325878978f, -0.053045451641f, 0.017241392285f};
    f32 s = x * x;
    f32 near = x * __fmaf_rn(polynomial(s, c), s, 1.0f), far = __fmaf_rn(-2.0f, logistic(x * (2 * log2e)), 1.0f);
    return fabsf(x) < 0.5f ? near : far;
}
__device__ inline f32 erf(f32 x) {
    constexpr f32 c[] = {0.79788446426f, -0.13297402859f, 0.019879642874f, -0.0021557193249f};
    f32 y = x * 1.41421356237309504880f;
    f32 near = y * polynomial(y * y, c), far = __fmaf_rn(2.0f, logistic(normal(y)), -1.0f);
    return fabsf(x) < 0.5f ? near : far;
}

} // namespace narrowly
