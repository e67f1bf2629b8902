// Rows: what softmax and norms share. A row is n elements side by side that depend on each other, and `group` threads of a
// block have it in registers from reading it to writing the result: a part of a warp, or a whole block.
#pragma once
#include "axes.cuh"

// across combines v of all threads of a group, a power of 2 up to 32 or the whole block, and tells all of them. shared has
// 32 elements that nothing else uses.
template <class A, class Merge> __device__ inline A across(A v, A identity, u32 group, A *shared, Merge merge) {
#pragma unroll 1
    for (u32 half = min(group, 32u) / 2; half > 0; half /= 2) v = merge(v, A::xored(v, half));
    if (group <= 32) return v;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    v = identity;
    if (lane < (blockDim.x + 31) / 32) v = shared[lane];
#pragma unroll 1
    for (u32 half = 16; half > 0; half /= 2) v = merge(v, A::xored(v, half));
    return v;
}

// A One is a number, for across.
template <class N> struct One {
    N v;
    __device__ static One xored(One a, u32 by) { return {__shfl_xor_sync(~0u, a.v, by)}; }
};

template <class N> __device__ inline N sumAcross(N v, u32 group, N *shared) {
    return across(One<N>{v}, One<N>{0}, group, reinterpret_cast<One<N> *>(shared),
                  [](One<N> a, One<N> b) { return One<N>{a.v + b.v}; })
        .v;
}

__device__ inline f32 greater(f32 a, f32 b) { return fmaxf(a, b); }
__device__ inline f64 greater(f64 a, f64 b) { return fmax(a, b); }

template <class N> __device__ inline N maxAcross(N v, N least, u32 group, N *shared) {
    return across(One<N>{v}, One<N>{least}, group, reinterpret_cast<One<N> *>(shared),
                  [](One<N> a, One<N> b) { return One<N>{greater(a.v, b.v)}; })
        .v;
}

// A Row is one thread's share of a row: R units of V elements, group units apart.
template <class T, int V, int R> struct Row {
    Number<T> value[R * V];
    u32 units, first, group;

    // load reads the share of a row of that many units; what is not there becomes fill.
    __device__ inline void load(const T *x, u32 rowUnits, u32 threads, u32 lane, Number<T> fill) {
        units = rowUnits, first = lane, group = threads;
        Unit<T, V> u[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            if (here(r)) u[r].load(x + at(r));
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int v = 0; v < V; v++) value[r * V + v] = here(r) ? u[r].get(v) : fill;
    }

    // here reports whether the row has unit r of the share, and at where it begins.
    __device__ inline bool here(int r) const { return first + r * group < units; }
    __device__ inline u32 at(int r) const { return (first + r * group) * V; }
};

// Pieces are elements from first to end of a row cut into whole units, from head to tail, that are aligned in x, and up to
// 2*V-2 elements before and behind.
template <class T, int V> struct Pieces {
    i64 first, head, tail, end;

    __device__ inline Pieces(const T *x, i64 from, i64 to) : first(from), end(to) {
        head = min(end, first + i64(-(u64(x + first) / sizeof(T)) % V));
        tail = head + (end - head) / V * V;
    }

    // rest is element number i of those outside of units, at or behind end if there are fewer.
    __device__ inline i64 rest(u32 i) const { return first + i < head ? first + i : tail + i - (head - first); }
};
