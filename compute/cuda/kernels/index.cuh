// Where the elements of operands lie: index.go fills in what is here.
#pragma once
#include "element.cuh"

constexpr int MaxRank = 16;

// A Divisor divides numbers below 2^31 by multiplication (Granlund and Montgomery, "Division by invariant integers using
// multiplication", PLDI 1994).
struct Divisor { u32 magic, shift; };

__device__ inline u32 divide(u32 n, Divisor d) { return (__umulhi(n, d.magic) + n) >> d.shift; }

// A Walk visits n < 2^31 elements of N operands that have one shape, fastest axis first. S is i32 or i64: what holds the
// strides, in elements. It has at least one axis.
template <int N, class S = i32> struct Walk {
    u32 n, rank;
    u32 shape[MaxRank];
    Divisor by[MaxRank];
    S stride[N][MaxRank];
};

// locate sets at[m][k] to the offset of element first+m*step in operand k, in elements. Elements beyond the last have one
// too, of no meaning.
template <int M, int N, class S>
__device__ inline void locate(const Walk<N, S> &w, u32 first, u32 step, i64 (&at)[M][N]) {
    i32 i[M]; // signed, for a multiplication that makes 64 bits of two times 32
#pragma unroll
    for (int m = 0; m < M; m++) {
        i[m] = first + m * step;
#pragma unroll
        for (int k = 0; k < N; k++) at[m][k] = 0;
    }
    u32 last = w.rank - 1;
#pragma unroll 1
    for (u32 axis = 0; axis < last; axis++) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            i32 q = divide(i[m], w.by[axis]), r = i[m] - q * w.shape[axis];
#pragma unroll
            for (int k = 0; k < N; k++) at[m][k] += i64(r) * w.stride[k][axis];
            i[m] = q;
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int k = 0; k < N; k++) at[m][k] += i64(i[m]) * w.stride[k][last];
}

// locate of one element.
template <int N, class S> __device__ inline void locate(const Walk<N, S> &w, u32 i, i64 (&at)[N]) {
    i64 all[1][N];
    locate(w, i, 0, all);
#pragma unroll
    for (int k = 0; k < N; k++) at[k] = all[0][k];
}
