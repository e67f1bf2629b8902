// Sort and TopK of rows. Elements become keys, unsigned numbers in the same order: of 64 bits for elements of 8 bytes, else
// of 32. All sorting is ascending; descending and the greatest turn the keys around. Equal elements have equal keys, so
// that what is sorted is keys and places, and elements are copied from their places in the end.
#pragma once
#include "axes.cuh"

using Key = ELEMENT;

struct Sort {
    const void *x;
    void *values; // or null
    i64 *indices; // or null
    Key *keys, *keysOut;      // [rows][n], [rows][n] or what select leaves; null keys are those of x
    u32 *places, *placesOut;  // likewise; null in the place of 0, 1, 2, ...; no placesOut: move writes the results
    u32 *counts, *totals;     // [rows][256][tiles], [rows][256]
    i64 rows, row;            // how many, and which is the first, of this launch
    i64 n, k;                 // elements of a row, and of its result
    i64 xStride, valuesStride, indicesStride; // along the axis
    i64 part;                 // elements of a row that a block of select looks at
    u64 sign, infinity;       // bits of an element; infinity is 0 if it is no float
    u64 flip;                 // what turns keys around: all bits of an element or 0
    u32 size;                 // bytes of an element
    u32 kind;                 // 0 unsigned, 1 signed, 2 float
    u32 shift;                // of the digit
    u32 tiles;
    u32 padded;               // n rounded up to a power of 2, for block
    u32 parts;                // of a row, for select
    Axes<3> kept;             // x, values, indices
};

// elements reads those at at[0] to at[N-1], all at once.
template <int N> __device__ inline void elements(const Sort &p, const i64 (&at)[N], Key (&bits)[N]) {
    if (sizeof(Key) == 8 || p.size == 4) {
#pragma unroll
        for (int j = 0; j < N; j++) bits[j] = static_cast<const Key *>(p.x)[at[j]];
    } else if (p.size == 2) {
#pragma unroll
        for (int j = 0; j < N; j++) bits[j] = static_cast<const u16 *>(p.x)[at[j]];
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) bits[j] = static_cast<const u8 *>(p.x)[at[j]];
    }
}

__device__ inline Key element(const Sort &p, i64 at) {
    Key bits[1];
    elements<1>(p, {at}, bits);
    return bits[0];
}

__device__ inline Key keyOf(const Sort &p, Key bits) {
    const Key sign = Key(p.sign), all = sign | (sign - 1);
    if (p.kind == 1) bits ^= sign;
    if (p.kind == 2) {
        Key magnitude = bits & (sign - 1);
        if (magnitude > Key(p.infinity)) bits = all; // NaN, above all
        else if (magnitude == 0) bits = sign;        // zeros are equal
        else bits = bits & sign ? bits ^ all : bits | sign;
    }
    return bits ^ Key(p.flip);
}

// storeValue writes an element of the result.
__device__ inline void storeValue(const Sort &p, i64 at, Key bits) {
    if (sizeof(Key) == 8 || p.size == 4) static_cast<Key *>(p.values)[at] = bits;
    else if (p.size == 2) static_cast<u16 *>(p.values)[at] = u16(bits);
    else static_cast<u8 *>(p.values)[at] = u8(bits);
}

// valueOf is the element whose key it is. Zeros of both signs have one key, and so have all NaNs: one of these is read from
// where it is in x. Equal keys are in the order of their places, so such reads ascend.
__device__ inline Key valueOf(const Sort &p, Key key, i64 at) {
    const Key sign = Key(p.sign), all = sign | (sign - 1);
    key ^= Key(p.flip);
    if (p.kind == 1) return key ^ sign;
    if (p.kind == 2) {
        if (key == all || key == sign) return element(p, at);
        return key & sign ? key ^ sign : key ^ all;
    }
    return key;
}

// emit writes elements j, j+step ... of a row's result, below k, which come from places[0] to places[N-1].
template <int N> __device__ inline void emit(const Sort &p, const i64 (&at)[3], i64 j, i64 step, const u32 (&places)[N]) {
    if (p.indices) {
#pragma unroll
        for (int m = 0; m < N; m++)
            if (j + m * step < p.k) p.indices[at[2] + (j + m * step) * p.indicesStride] = places[m];
    }
    if (!p.values) return;
    i64 from[N];
    Key bits[N];
#pragma unroll
    for (int m = 0; m < N; m++) from[m] = at[0] + places[m] * p.xStride;
    elements(p, from, bits);
#pragma unroll
    for (int m = 0; m < N; m++) {
        if (j + m * step >= p.k) break;
        storeValue(p, at[1] + (j + m * step) * p.valuesStride, bits[m]);
    }
}

constexpr int Threads = 256, Warps = Threads / 32;

// before is the sum of v over the threads before this one, of 256; total becomes that of all.
__device__ inline u32 before(u32 v, u32 *total) {
    __shared__ u32 warps[Warps];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sum = v;
#pragma unroll
    for (u32 by = 1; by < 32; by *= 2) {
        u32 other = __shfl_up_sync(~0u, sum, by);
        if (lane >= by) sum += other;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    u32 less = 0, all = 0;
#pragma unroll
    for (u32 w = 0; w < Warps; w++) {
        if (w < warp) less += warps[w];
        all += warps[w];
    }
    *total = all;
    return less + sum - v;
}
