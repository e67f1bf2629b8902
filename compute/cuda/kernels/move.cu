// Elements moved and set, by their size: move_u32, move_walk_u32, fill_u32, fill_walk_u32, where_u32, where_walk_u32 and
// transpose_u32 are those of 4 bytes; c128 has 16, and no where. u8 and u16 have transpose_words.
//
// types: u8 u16 u32 u64 c128
#include "elementwise.cuh"

using T = ELEMENT;

constexpr int V = 16 / sizeof(T);

struct Move {
    template <class P> __device__ void operator()(P &p) const { memcpy(&p.d, &p.a, sizeof p.d); }
};
KERNEL(move)(const __grid_constant__ Operands p) { vectors<V, 4, T, T>(p, Move{}); }
KERNEL(move_walk)(const __grid_constant__ Operands p) { walk<T, T>(p, Move{}); }

struct Fill {
    const Operands &o;
    template <class P> __device__ void operator()(P &p) const {
        T value;
        memcpy(&value, o.value, sizeof value);
#pragma unroll
        for (int v = 0; v < sizeof p.d / sizeof value; v++) p.d.e[v] = value;
    }
};
KERNEL(fill)(const __grid_constant__ Operands p) { vectors<V, 4, T>(p, Fill{p}); }
KERNEL(fill_walk)(const __grid_constant__ Operands p) { walk<T>(p, Fill{p}); }

#define SMALL_u8 1
#define SMALL_u16 1
#define SMALL_u32 0
#define SMALL_u64 0
#define SMALL_c128 0
#define WHERE_u8 1
#define WHERE_u16 1
#define WHERE_u32 1
#define WHERE_u64 1
#define WHERE_c128 0
#if GLUE(WHERE, ELEMENT)
struct Where {
    template <class P> __device__ void operator()(P &p) const {
#pragma unroll
        for (int v = 0; v < sizeof p.d / sizeof(T); v++) p.d.e[v] = p.a.e[v].bits ? p.b.e[v] : p.c.e[v];
    }
};
KERNEL(where)(const __grid_constant__ Operands p) { vectors<V, 2, T, b8, T, T>(p, Where{}); }
KERNEL(where_walk)(const __grid_constant__ Operands p) { walk<T, b8, T, T>(p, Where{}); }
#endif

// A matrix whose columns follow each other in dst and whose rows do in src, and that for each of n others. Blocks move
// tiles of side by side elements, through shared memory.
struct Transpose {
    void *dst, *src;
    u32 rows, columns;      // dst[row*dstStep + column] = src[column*srcStep + row]
    i64 dstStep, srcStep;
    Divisor across, down;   // by the number of tiles along columns, and along rows
    u32 tilesAcross, tilesDown;
    Walk<2> walk;           // the others
};

constexpr int side = sizeof(T) == 16 ? 32 : 64;
constexpr int pad = sizeof(T) < 4 ? 4 / sizeof(T) : 1; // so that columns of a tile lie in different banks

KERNEL(transpose)(const __grid_constant__ Transpose p) {
    __shared__ T tile[side][side + pad];
    u32 q = divide(blockIdx.x, p.across), column0 = (blockIdx.x - q * p.tilesAcross) * side;
    u32 matrix = divide(q, p.down), row0 = (q - matrix * p.tilesDown) * side;
    i64 at[2];
    locate(p.walk, matrix, at);
    u32 x = threadIdx.x % side, y = threadIdx.x / side;
    const T *src = (const T *)p.src + at[1];
    T *dst = (T *)p.dst + at[0];
#pragma unroll
    for (int i = 0; i < side; i += Threads / side) {
        u32 row = row0 + x, column = column0 + y + i;
        if (row < p.rows && column < p.columns) tile[y + i][x] = src[column * p.srcStep + row];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < side; i += Threads / side) {
        u32 row = row0 + y + i, column = column0 + x;
        if (row < p.rows && column < p.columns) dst[row * p.dstStep + column] = tile[x][y + i];
    }
}

// The same of elements of 1 and 2 bytes, in words of 4: all addresses, steps and lengths are multiples of a word. A tile is
// 32 words by as many elements. Word w of column c lies at w ^ c/P, so that neither columns nor rows share a bank.
#if GLUE(SMALL, ELEMENT)
constexpr int P = 4 / sizeof(T); // elements of a word

// turn makes P rows of P elements of as many columns.
__device__ inline void turn(u32 (&w)[P]) {
    if constexpr (P == 2) {
        u32 a = w[0], b = w[1];
        w[0] = __byte_perm(a, b, 0x5410), w[1] = __byte_perm(a, b, 0x7632);
    } else {
        u32 a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[P - 1], 0x5140);
        u32 c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[P - 1], 0x7362);
        w[0] = __byte_perm(a, b, 0x5410), w[1] = __byte_perm(a, b, 0x7632);
        w[2] = __byte_perm(c, d, 0x5410), w[P - 1] = __byte_perm(c, d, 0x7632);
    }
}

KERNEL(transpose_words)(const __grid_constant__ Transpose p) {
    constexpr int side = 32 * P;
    __shared__ u32 tile[side][32];
    u32 q = divide(blockIdx.x, p.across), column0 = (blockIdx.x - q * p.tilesAcross) * side;
    u32 matrix = divide(q, p.down), row0 = (q - matrix * p.tilesDown) * side;
    i64 at[2];
    locate(p.walk, matrix, at);
    u32 x = threadIdx.x % 32, y = threadIdx.x / 32;
    const T *src = (const T *)p.src + at[1];
    T *dst = (T *)p.dst + at[0];
#pragma unroll
    for (int i = 0; i < side; i += Threads / 32) {
        u32 row = row0 + x * P, column = column0 + y + i;
        if (row < p.rows && column < p.columns)
            tile[y + i][x ^ (y + i) / P] = *(const u32 *)(src + column * p.srcStep + row);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; i += Threads / 32) {
        u32 row = row0 + (y + i) * P, column = column0 + x * P, w[P];
        if (row >= p.rows || column >= p.columns) continue;
#pragma unroll
        for (int j = 0; j < P; j++) w[j] = tile[x * P + j][(y + i) ^ x];
        turn(w);
#pragma unroll
        for (int j = 0; j < P; j++) *(u32 *)(dst + (row + j) * p.dstStep + column) = w[j];
    }
}
#endif
