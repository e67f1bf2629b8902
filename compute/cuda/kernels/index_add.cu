// types: u8 u16 u32 u64 f16 f32 f64 bf16
//
// ScatterAdd: elements added to where an index says, along an axis, by atomic operations. Integers are added as unsigned
// ones. Additions of float32 flush subnormal numbers to zero, as the hardware's do (PTX ISA, "atom").
#include "index.cuh"
#include "fault.cuh"

struct ScatterAdd {
    const ELEMENT *src;
    ELEMENT *out;
    const void *index;
    Fault *fault;
    i64 length;   // of the axis, in out
    i64 stride;   // along it, in out
    u32 wide;     // 1: the index is i64, else i32
    u32 op;       // for fault
    Walk<3> walk; // src, out (0 along the axis), index
};

__device__ inline void add(u32 *to, u32 v) { atomicAdd(to, v); }
__device__ inline void add(u64 *to, u64 v) { atomicAdd(to, v); }
__device__ inline void add(f32 *to, f32 v) { atomicAdd(to, v); }
__device__ inline void add(f64 *to, f64 v) { atomicAdd(to, v); }

// What has no atomic addition is added by compare and swap: 16 bits by themselves, 8 in the word that holds them.
template <class Sum> __device__ inline void swapped(u16 *to, Sum sum) {
    u16 seen = *static_cast<volatile u16 *>(to), before;
    do {
        before = seen;
        seen = atomicCAS(to, before, sum(before));
    } while (seen != before);
}
__device__ inline void add(u16 *to, u16 v) {
    swapped(to, [v](u16 old) { return u16(old + v); });
}
__device__ inline void add(f16 *to, f16 v) {
    swapped(&to->bits, [v](u16 old) { return narrow<f16>(widen(f16{old}) + widen(v)).bits; });
}
__device__ inline void add(bf16 *to, bf16 v) {
    swapped(&to->bits, [v](u16 old) { return narrow<bf16>(widen(bf16{old}) + widen(v)).bits; });
}
__device__ inline void add(u8 *to, u8 v) {
    u32 *word = reinterpret_cast<u32 *>(u64(to) & ~u64(3)), shift = 8 * (u64(to) & 3);
    u32 seen = *static_cast<volatile u32 *>(word), before;
    do {
        before = seen;
        u32 sum = (before >> shift) + v & 0xff;
        seen = atomicCAS(word, before, (before & ~(0xffu << shift)) | sum << shift);
    } while (seen != before);
}

constexpr int Threads = 256, Some = 4;

KERNEL(scatter_add)(const __grid_constant__ ScatterAdd p) {
    const u32 first = blockIdx.x * (Some * Threads) + threadIdx.x;
    i64 at[Some][3], index[Some];
    ELEMENT element[Some];
    locate(p.walk, first, Threads, at);
#pragma unroll
    for (int k = 0; k < Some; k++) {
        if (first + k * Threads >= p.walk.n) continue;
        index[k] = p.wide ? static_cast<const i64 *>(p.index)[at[k][2]] : static_cast<const i32 *>(p.index)[at[k][2]];
        element[k] = p.src[at[k][0]];
    }
#pragma unroll
    for (int k = 0; k < Some; k++) {
        if (first + k * Threads >= p.walk.n) continue;
        if (u64(index[k]) < u64(p.length)) add(p.out + at[k][1] + index[k] * p.stride, element[k]);
        else fail(p.fault, p.op, index[k], p.length);
    }
}
