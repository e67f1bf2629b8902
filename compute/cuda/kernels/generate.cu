// Elements made from their row-major numbers: arange_u32, arange_f32, uniform_f32, normal_f32, integers_u32 ... Integers
// are made by their size.
//
// Random numbers are the same bits as the host's: package backend says which operations make them, and __dadd_rn and the
// like are not fused.
#include "convert.cuh"
#include "index.cuh"

constexpr int Threads = 256, PerThread = 4;

struct Generate {
    void *dst;
    u64 base;     // the number of the first element
    u64 seed;     // of random numbers; base has the offset added
    i64 first, step; // of integers: start and step, or the least and the span
    f64 low, by;  // of floats: start and step; low and high-low; mean and standard deviation
    f64 limit;    // of uniform ones: the greatest that is allowed
    Walk<1, i64> walk; // in row-major order
};

template <class T, class F> __device__ inline void generate(const Generate &p, F make) {
    u32 first = blockIdx.x * (Threads * PerThread) + threadIdx.x;
    i64 at[PerThread][1];
    locate(p.walk, first, Threads, at);
#pragma unroll 1
    for (int k = 0; k < PerThread; k++) {
        u32 i = first + k * Threads;
        if (i >= p.walk.n) return;
        ((T *)p.dst)[at[0][0]] = make(p.base + i);
#pragma unroll
        for (int m = 0; m + 1 < PerThread; m++) at[m][0] = at[m + 1][0];
    }
}

// The two words of block i that are used, of Philox4x32-10.
__device__ inline u64 draw(u64 seed, u64 i) {
    u32 c0 = u32(i), c1 = u32(i >> 32), c2 = 0, c3 = 0, k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 p0 = u64(0xD2511F53) * c0, p1 = u64(0xCD9E8D57) * c2;
        c0 = u32(p1 >> 32) ^ c1 ^ k0, c1 = u32(p1), c2 = u32(p0 >> 32) ^ c3 ^ k1, c3 = u32(p0);
        k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
    return c0 | u64(c1) << 32;
}

__device__ inline f64 horner(const f64 *c, int n, f64 x) {
    f64 y = c[n - 1];
#pragma unroll
    for (int i = n - 2; i >= 0; i--) y = __dadd_rn(__dmul_rn(y, x), c[i]);
    return y;
}

// exactLog is ExactLog of a normal number below 1.
__device__ inline f64 exactLog(f64 x) {
    constexpr f64 c[11] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                           2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
    u64 bits = __double_as_longlong(x);
    int k = int(bits >> 52) - 1023;
    f64 m = __longlong_as_double((bits & 0xfffffffffffff) | 0x3ff0000000000000);
    if (m > 0x1.6a09e667f3bcdp+00) m = __dmul_rn(m, 0.5), k++; // the square root of 2
    f64 f = __dadd_rn(m, -1), s = __ddiv_rn(f, __dadd_rn(2, f)), z = __dmul_rn(s, s);
    f64 t = __dmul_rn(horner(c, 11, z), z), n = k;
    f64 low = __dadd_rn(__dmul_rn(s, __dadd_rn(f, -t)), -__dmul_rn(n, 0x1.a39ef35793c76p-33));
    return __dadd_rn(__dmul_rn(n, 0x1.62e42feep-1), -__dadd_rn(low, -f));
}

// normInv is NormInv of 0 < p < 1.
__device__ __noinline__ f64 normInv(f64 p) {
    constexpr f64 a[8] = {3.3871328727963666080,     1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
                          4.5921953931549871457e+4,  6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3};
    constexpr f64 b[8] = {1,                         4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
                          2.1213794301586595867e+4,  3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3};
    constexpr f64 c[8] = {1.42343711074968357734,    4.63033784615654529590,    5.76949722146069140550,    3.64784832476320460504,
                          1.27045825245236838258,    2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4};
    constexpr f64 d[8] = {1,                         2.05319162663775882187,    1.67638483018380384940,    6.89767334985100004550e-1,
                          1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9};
    constexpr f64 e[8] = {6.65790464350110377720,    5.46378491116411436990,    1.78482653991729133580,    2.96560571828504891230e-1,
                          2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7};
    constexpr f64 f[8] = {1,                         5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                          7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15};
    f64 q = __dadd_rn(p, -0.5);
    if (q >= -0.425 && q <= 0.425) {
        f64 r = __dadd_rn(0.180625, -__dmul_rn(q, q));
        return __ddiv_rn(__dmul_rn(q, horner(a, 8, r)), horner(b, 8, r));
    }
    f64 r = __dsqrt_rn(-exactLog(q > 0 ? __dadd_rn(1, -p) : p)), z;
    if (r <= 5) {
        r = __dadd_rn(r, -1.6);
        z = __ddiv_rn(horner(c, 8, r), horner(d, 8, r));
    } else {
        r = __dadd_rn(r, -5);
        z = __ddiv_rn(horner(e, 8, r), horner(f, 8, r));
    }
    return q < 0 ? -z : z;
}

// through rounds to float32 and then to the type, as arange does, or not at all for float64.
template <class T> __device__ inline T through(f64 x) {
    if constexpr (same<T, f64>) return x;
    else return narrow<T>(__double2float_rn(x));
}

#define INTEGERS(T)                                                                                                      \
    extern "C" __global__ void arange_##T(const __grid_constant__ Generate p) {                                          \
        generate<T>(p, [&](u64 i) { return T(p.first + i64(i) * p.step); });                                             \
    }                                                                                                                    \
    extern "C" __global__ void integers_##T(const __grid_constant__ Generate p) {                                        \
        generate<T>(p, [&](u64 i) { return T(p.first + i64(__umul64hi(draw(p.seed, i), p.step))); });                    \
    }
INTEGERS(u8) INTEGERS(u16) INTEGERS(u32) INTEGERS(u64)

#define FLOATS(T)                                                                                                        \
    extern "C" __global__ void arange_##T(const __grid_constant__ Generate p) {                                          \
        generate<T>(p, [&](u64 i) { return through<T>(__dadd_rn(p.low, __dmul_rn(f64(i), p.by))); });                    \
    }                                                                                                                    \
    extern "C" __global__ void uniform_##T(const __grid_constant__ Generate p) {                                         \
        generate<T>(p, [&](u64 i) {                                                                                      \
            f64 x = __dadd_rn(p.low, __dmul_rn(f64(draw(p.seed, i) >> 11) * 0x1p-53, p.by));                             \
            return convert<T>(x > p.limit ? p.limit : x);                                                                \
        });                                                                                                              \
    }                                                                                                                    \
    extern "C" __global__ void normal_##T(const __grid_constant__ Generate p) {                                          \
        generate<T>(p, [&](u64 i) {                                                                                      \
            f64 z = normInv(__dadd_rn(f64(draw(p.seed, i) >> 12), 0.5) * 0x1p-52);                                       \
            return convert<T>(__dadd_rn(p.low, __dmul_rn(p.by, z)));                                                     \
        });                                                                                                              \
    }
FLOATS(f16) FLOATS(bf16) FLOATS(f32) FLOATS(f64)
