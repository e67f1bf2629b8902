// Whether a complex number is not 0: nonzero_c64 and nonzero_walk_c64. What else is done with complex numbers is done with
// their parts.
//
// types: c64 c128
#include "elementwise.cuh"

using T = ELEMENT;

struct Nonzero {
    template <class P> __device__ void operator()(P &p) const {
#pragma unroll
        for (int v = 0; v < sizeof p.d.e; v++) p.d.e[v] = b8{u8(p.a.e[v].re != 0 || p.a.e[v].im != 0)};
    }
};
KERNEL(nonzero)(const __grid_constant__ Operands p) { vectors<16 / sizeof(T), 4, b8, T>(p, Nonzero{}); }
KERNEL(nonzero_walk)(const __grid_constant__ Operands p) { walk<b8, T>(p, Nonzero{}); }
