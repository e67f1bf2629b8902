// What kernels find wrong, kept in one cell of page-locked host memory, so that asking costs no call: see failure.go.
#pragma once
#include "element.cuh"

struct Fault {
    u32 claimed, op; // op: 0 while there is nothing to read, else 1 gather, 2 index_select, 3 scatter_add
    i64 index, size;
};

// fail keeps the first index out of range; size is the length of the axis that it is for.
__device__ inline void fail(Fault *f, u32 op, i64 index, i64 size) {
    if (atomicCAS(&f->claimed, 0, 1) != 0) return;
    f->index = index;
    f->size = size;
    __threadfence_system();
    *(volatile u32 *)&f->op = op;
}
