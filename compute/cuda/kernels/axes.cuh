// Axes with lengths and strides of 64 bits, for kernels that place an index once for many elements: see axes.go.
#pragma once
#include "index.cuh"

// Axes are up to MaxRank axes, the innermost first, and the strides of N operands along them, in elements.
template <int N> struct Axes {
    i64 rank;
    i64 n[MaxRank];
    i64 stride[N][MaxRank];
};

// place adds to at[k] the offset of the element with the row-major index i in operand k.
template <int N> __device__ inline void place(const Axes<N> &a, i64 i, i64 (&at)[N]) {
    const int last = int(a.rank) - 1;
    if (last < 0) return;
#pragma unroll 1
    for (int axis = 0; axis < last; axis++) {
        i64 rest = i / a.n[axis], r = i - rest * a.n[axis];
        for (int k = 0; k < N; k++) at[k] += r * a.stride[k][axis];
        i = rest;
    }
    for (int k = 0; k < N; k++) at[k] += i * a.stride[k][last];
}

// A Unit is V elements that lie side by side, loaded and stored at once: at most 16 bytes, aligned as a whole.
template <class T, int V> struct Unit {
    static constexpr int Bytes = sizeof(T) * V, Words = (Bytes + 3) / 4;
    u32 word[Words];

    __device__ inline void load(const T *p) {
        if constexpr (Bytes == 16) {
            uint4 w = *reinterpret_cast<const uint4 *>(p);
            word[0] = w.x, word[1] = w.y, word[2] = w.z, word[3] = w.w;
        } else if constexpr (Bytes == 8) {
            uint2 w = *reinterpret_cast<const uint2 *>(p);
            word[0] = w.x, word[1] = w.y;
        } else if constexpr (Bytes == 4) {
            word[0] = *reinterpret_cast<const u32 *>(p);
        } else if constexpr (Bytes == 2) {
            word[0] = *reinterpret_cast<const u16 *>(p);
        } else {
            word[0] = *reinterpret_cast<const u8 *>(p);
        }
    }

    __device__ inline void store(T *p) const {
        if constexpr (Bytes == 16) *reinterpret_cast<uint4 *>(p) = make_uint4(word[0], word[1], word[2], word[3]);
        else if constexpr (Bytes == 8) *reinterpret_cast<uint2 *>(p) = make_uint2(word[0], word[1]);
        else if constexpr (Bytes == 4) *reinterpret_cast<u32 *>(p) = word[0];
        else if constexpr (Bytes == 2) *reinterpret_cast<u16 *>(p) = u16(word[0]);
        else *reinterpret_cast<u8 *>(p) = u8(word[0]);
    }

    // bits is element v as it lies in memory.
    __device__ inline u64 bits(int v) const {
        if constexpr (sizeof(T) == 8) return u64(word[2 * v]) | u64(word[2 * v + 1]) << 32;
        else if constexpr (sizeof(T) == 4) return word[v];
        else if constexpr (sizeof(T) == 2) return word[v / 2] >> 16 * (v % 2) & 0xffff;
        else return word[v / 4] >> 8 * (v % 4) & 0xff;
    }

    // get is element v as a number.
    __device__ inline Number<T> get(int v) const {
        if constexpr (same<T, f32>) return fromBits(word[v]);
        else if constexpr (same<T, f64>) return __longlong_as_double(i64(bits(v)));
        else if constexpr (same<T, f16>) return widen(f16{u16(bits(v))});
        else if constexpr (same<T, bf16>) return fromBits(v % 2 ? word[v / 2] & 0xffff0000 : word[v / 2] << 16);
        else return T(bits(v));
    }

    // set makes element v of a number, in ascending order of v: the first of a word clears it.
    __device__ inline void set(int v, Number<T> x) {
        if constexpr (same<T, f32>) {
            word[v] = __float_as_uint(x);
        } else if constexpr (same<T, f64>) {
            u64 b = u64(__double_as_longlong(x));
            word[2 * v] = u32(b), word[2 * v + 1] = u32(b >> 32);
        } else {
            static_assert(same<T, f16> || same<T, bf16>, "floats");
            u32 b = narrow<T>(x).bits;
            word[v / 2] = v % 2 ? word[v / 2] | b << 16 : b;
        }
    }
};

// full is how many elements of type T are 16 bytes.
template <class T> constexpr int full = 16 / sizeof(T);
