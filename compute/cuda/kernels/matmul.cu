// Products of matrices of any strides, matmul_f32 and so on: what cuBLAS is not there for. A block makes a tile of 64 x 64
// of the result, from tiles of 64 x 16 and 16 x 64 in shared memory; a thread 4 x 4 of it. Integers wrap, so unsigned ones
// use the kernels of signed ones. Sums in float32 are kept for 256 terms and then added, which keeps the error small.
//
// types: i8 i16 i32 i64 f16 bf16 f32 f64
#include "index.cuh"

using T = ELEMENT;

struct MatMul {
    void *dst, *a, *b;
    u32 m, n, k;
    u32 aAlongK, bAlongK; // whether steps along k are the shorter ones
    u32 tilesM, tilesN;
    Divisor byM, byN;
    i64 dstM, dstN, aM, aK, bK, bN; // strides
    Walk<3, i64> walk;              // batches: dst, a, b
};

// What sums are kept in.
template <class T> using Sum = typename Choose<isInteger<T> && sizeof(T) <= 4, u32, typename Choose<isInteger<T>, u64, Number<T>>::type>::type;
using S = Sum<T>;

template <class T> __device__ inline T finish(Sum<T> x) {
    if constexpr (isInteger<T>) return T(x);
    else return narrow<T>(x);
}

constexpr int Tile = 64, Depth = 16, Each = 4, Threads = 256;
constexpr u32 Terms = 256;
constexpr bool blocked = same<S, f32>;

// fetch reads this thread's part of a tile of 64 along x by 16 along k: as they lie in memory, so that neighbours in a warp
// are neighbours there.
__device__ inline void fetch(S (&part)[Each], const T *from, i64 stepX, i64 stepK, u32 x0, u32 k0, u32 lengthX, u32 lengthK, bool alongK) {
#pragma unroll
    for (int i = 0; i < Each; i++) {
        u32 e = threadIdx.x + i * Threads;
        u32 x = x0 + (alongK ? e / Depth : e % Tile), k = k0 + (alongK ? e % Depth : e / Tile);
        part[i] = x < lengthX && k < lengthK ? S(widen(from[x * stepX + k * stepK])) : S(0);
    }
}

__device__ inline void keep(S (&tile)[Depth][Tile + Each], const S (&part)[Each], bool alongK) {
#pragma unroll
    for (int i = 0; i < Each; i++) {
        u32 e = threadIdx.x + i * Threads;
        if (alongK) tile[e % Depth][e / Depth] = part[i];
        else tile[e / Tile][e % Tile] = part[i];
    }
}

__device__ inline void add(S (&total)[Each][Each], S (&sum)[Each][Each]) {
#pragma unroll
    for (int i = 0; i < Each; i++)
#pragma unroll
        for (int j = 0; j < Each; j++) total[i][j] += sum[i][j], sum[i][j] = 0;
}

KERNEL(matmul)(const __grid_constant__ MatMul p) {
    __shared__ __align__(16) S left[Depth][Tile + Each];
    __shared__ __align__(16) S right[Depth][Tile + Each];
    u32 q = divide(blockIdx.x, p.byM), m0 = (blockIdx.x - q * p.tilesM) * Tile;
    u32 batch = divide(q, p.byN), n0 = (q - batch * p.tilesN) * Tile;
    i64 at[3];
    locate(p.walk, batch, at);
    const T *a = (const T *)p.a + at[1], *b = (const T *)p.b + at[2];
    S sum[Each][Each] = {}, total[Each][Each] = {}, nextLeft[Each], nextRight[Each];
    u32 tx = threadIdx.x % 16 * Each, ty = threadIdx.x / 16 * Each;
    fetch(nextLeft, a, p.aM, p.aK, m0, 0, p.m, p.k, p.aAlongK);
    fetch(nextRight, b, p.bN, p.bK, n0, 0, p.n, p.k, p.bAlongK);
#pragma unroll 1
    for (u32 k0 = 0; k0 < p.k; k0 += Depth) {
        keep(left, nextLeft, p.aAlongK);
        keep(right, nextRight, p.bAlongK);
        __syncthreads();
        fetch(nextLeft, a, p.aM, p.aK, m0, k0 + Depth, p.m, p.k, p.aAlongK);
        fetch(nextRight, b, p.bN, p.bK, n0, k0 + Depth, p.n, p.k, p.bAlongK);
#pragma unroll
        for (int k = 0; k < Depth; k++) {
            S x[Each], y[Each];
#pragma unroll
            for (int i = 0; i < Each; i++) x[i] = left[k][ty + i], y[i] = right[k][tx + i];
#pragma unroll
            for (int i = 0; i < Each; i++)
#pragma unroll
                for (int j = 0; j < Each; j++) sum[i][j] += x[i] * y[j];
        }
        if (blocked && (k0 + Depth) % Terms == 0) add(total, sum);
        __syncthreads();
    }
    add(total, sum);
    T *dst = (T *)p.dst + at[0];
#pragma unroll
    for (int i = 0; i < Each; i++)
#pragma unroll
        for (int j = 0; j < Each; j++) {
            u32 m = m0 + ty + i, n = n0 + tx + j;
            if (m < p.m && n < p.n) dst[m * p.dstM + n * p.dstN] = finish<T>(total[i][j]);
        }
}
