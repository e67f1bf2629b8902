// types: u8 u16 u32 u64 c128
//
// Elements taken from where an index says, along an axis: Gather, and IndexSelect, whose index has strides of 0 along the
// other axes. Elements are moved, by their size; whole pieces of rows are, as larger ones.
#include "index.cuh"
#include "fault.cuh"

struct Gather {
    const ELEMENT *x;
    ELEMENT *out;
    const void *index;
    Fault *fault;
    i64 length;   // of the axis, in x
    i64 stride;   // along it, in x
    u32 wide;     // 1: the index is i64, else i32
    u32 op;       // for fault
    Walk<3> walk; // out, x (0 along the axis), index
};

constexpr int Threads = 256, Some = 4;

extern "C" __global__ void __launch_bounds__(Threads, 5) GLUE(gather, ELEMENT)(const __grid_constant__ Gather p) {
    const u32 first = blockIdx.x * (Some * Threads) + threadIdx.x;
    i64 at[Some][3], index[Some];
    ELEMENT element[Some];
    locate(p.walk, first, Threads, at);
#pragma unroll
    for (int k = 0; k < Some; k++) {
        if (first + k * Threads >= p.walk.n) continue;
        index[k] = p.wide ? static_cast<const i64 *>(p.index)[at[k][2]] : static_cast<const i32 *>(p.index)[at[k][2]];
    }
#pragma unroll
    for (int k = 0; k < Some; k++) {
        if (first + k * Threads >= p.walk.n) continue;
        element[k] = ELEMENT{};
        if (u64(index[k]) < u64(p.length)) element[k] = p.x[at[k][1] + index[k] * p.stride];
        else fail(p.fault, p.op, index[k], p.length);
    }
#pragma unroll
    for (int k = 0; k < Some; k++)
        if (first + k * Threads < p.walk.n) p.out[at[k][0]] = element[k];
}
