// types: f16 f32 f64 bf16
//
// Layer norm and RMS norm of rows: (x-mean)/sqrt(variance+eps) or x/sqrt(mean of squares+eps), times weight, plus bias.
//
// Rows that fit in the registers of a block are read once, and their variance is that of the differences from the mean.
// Longer rows are split over blocks as in softmax.cu: a first launch finds each split's mean and squares, a second one
// combines those of a row and writes.
#include "rows.cuh"

using Value = Number<ELEMENT>;

struct Norm {
    const ELEMENT *x;
    ELEMENT *out;
    const ELEMENT *weight, *bias; // of n elements, or null
    Value *parts;                 // [rows][splits] of count, mean and squares
    i64 rows, n;
    i64 chunk; // elements of one split
    f64 eps;
    u32 splits;
    u32 group; // threads that share a row
    u32 rms;   // 1: RMS norm
    u32 pad;
    Axes<2> kept; // x, out
};

// Moments are the count and the mean of some elements, and the sum of the squares of their differences from it; of an RMS
// norm the mean is 0. They are combined as Chan, Golub and LeVeque say ("Updating formulae and a pairwise algorithm for
// computing sample variances", 1979).
struct Moments {
    Value count, mean, squares;
    __device__ static Moments none() { return {0, 0, 0}; }
    __device__ static Moments xored(Moments a, u32 by) {
        return {__shfl_xor_sync(~0u, a.count, by), __shfl_xor_sync(~0u, a.mean, by), __shfl_xor_sync(~0u, a.squares, by)};
    }
};

__device__ inline Moments merge(Moments a, Moments b) {
    if (b.count == 0) return a;
    Value count = a.count + b.count, d = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + d * share, a.squares + b.squares + d * d * a.count * share};
}

// affine is weight times y plus bias, of V elements from i on, stored. aligned says that those of weight and bias are.
template <int V> __device__ inline void affine(const Norm &p, ELEMENT *out, i64 i, bool aligned, const Value (&y)[V]) {
    Unit<ELEMENT, V> u;
    Value weight[V], bias[V];
    auto load = [&](const ELEMENT *from, Value (&to)[V], Value none) {
        if (from && aligned) u.load(from + i);
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = !from ? none : aligned ? u.get(v) : widen(from[i + v]);
    };
    load(p.weight, weight, 1);
    load(p.bias, bias, 0);
#pragma unroll
    for (int v = 0; v < V; v++) u.set(v, y[v] * weight[v] + bias[v]);
    u.store(out + i);
}

template <int V, int R> __device__ inline void rows(const Norm &p) {
    __shared__ Value shared[2][32];
    const u32 lane = threadIdx.x % p.group;
    const i64 row = i64(blockIdx.x) * (blockDim.x / p.group) + threadIdx.x / p.group;
    i64 at[2] = {0, 0};
    if (row < p.rows) place(p.kept, row, at);
    Row<ELEMENT, V, R> x;
    x.load(p.x + at[0], row < p.rows ? u32(p.n / V) : 0, p.group, lane, 0);
    const Value n = Value(p.n);
    if (!p.rms) {
        Value sum = 0;
#pragma unroll
        for (int i = 0; i < R * V; i++) sum += x.value[i];
        const Value mean = sumAcross(sum, p.group, shared[0]) / n;
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int v = 0; v < V; v++) x.value[r * V + v] = x.here(r) ? x.value[r * V + v] - mean : 0;
    }
    Value squares = 0;
#pragma unroll
    for (int i = 0; i < R * V; i++) squares += x.value[i] * x.value[i];
    squares = sumAcross(squares, p.group, shared[1]);
    const Value factor = 1 / sqrt(squares / n + Value(p.eps));
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (!x.here(r)) continue;
        Value y[V];
#pragma unroll
        for (int v = 0; v < V; v++) y[v] = x.value[r * V + v] * factor;
        affine(p, p.out + at[1], x.at(r), true, y);
    }
}

constexpr int Whole = full<ELEMENT>, Most = same<ELEMENT, f64> ? 16 : 32; // elements of a unit, and of a thread

// some is the moments of the first n of v.
template <int N> __device__ inline Moments some(const Norm &p, const Value (&v)[N], int n) {
    Moments m = Moments::none();
    m.count = n;
#pragma unroll
    for (int k = 0; k < N; k++) m.mean += k < n ? v[k] : 0;
    m.mean = p.rms ? 0 : m.mean / m.count;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const Value d = k < n ? v[k] - m.mean : 0;
        m.squares += d * d;
    }
    return m;
}

KERNEL(norm_part)(const Norm p) {
    __shared__ Moments shared[32];
    i64 at[2] = {0, 0};
    const i64 row = blockIdx.x / p.splits, split = blockIdx.x % p.splits;
    place(p.kept, row, at);
    const ELEMENT *x = p.x + at[0];
    const Pieces<ELEMENT, Whole> pieces(x, split * p.chunk, min(p.n, (split + 1) * p.chunk));
    constexpr int N = Whole > 8 ? Whole : 8; // elements at once
    const i64 step = blockDim.x * Whole;
    Moments m = Moments::none();
#pragma unroll 1
    for (i64 i = pieces.head + threadIdx.x * Whole; i < pieces.tail; i += N / Whole * step) {
        Unit<ELEMENT, Whole> u[N / Whole];
        Value v[N];
        int n = 0;
#pragma unroll
        for (int k = 0; k < N / Whole; k++)
            if (i + k * step < pieces.tail) u[k].load(x + i + k * step), n += Whole;
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = u[k / Whole].get(k % Whole);
        m = merge(m, some(p, v, n));
    }
    const i64 rest = pieces.rest(threadIdx.x);
    if (rest < pieces.end) m = merge(m, some<1>(p, {widen(x[rest])}, 1));
    m = across(m, Moments::none(), blockDim.x, shared, merge);
    if (threadIdx.x != 0) return;
    Value *to = p.parts + i64(blockIdx.x) * 3;
    to[0] = m.count, to[1] = m.mean, to[2] = m.squares;
}

KERNEL(norm_write)(const Norm p) {
    __shared__ Moments shared[32];
    i64 at[2] = {0, 0};
    const i64 row = blockIdx.x / p.splits, split = blockIdx.x % p.splits;
    place(p.kept, row, at);
    Moments m = Moments::none();
    const Value *from = p.parts + row * p.splits * 3;
#pragma unroll 1
    for (u32 s = threadIdx.x; s < p.splits; s += blockDim.x) m = merge(m, Moments{from[3 * s], from[3 * s + 1], from[3 * s + 2]});
    m = across(m, Moments::none(), blockDim.x, shared, merge);
    const Value factor = 1 / sqrt(m.squares / Value(p.n) + Value(p.eps));
    const ELEMENT *x = p.x + at[0];
    ELEMENT *out = p.out + at[1];
    Pieces<ELEMENT, Whole> pieces(x, split * p.chunk, min(p.n, (split + 1) * p.chunk));
    if (u64(out + pieces.head) % 16 != 0) pieces.head = pieces.tail = pieces.first; // no units that both have
    const bool aligned = (u64(p.weight + pieces.head) | u64(p.bias + pieces.head)) % 16 == 0;
#pragma unroll 1
    for (i64 i = pieces.head + threadIdx.x * Whole; i < pieces.tail; i += blockDim.x * Whole) {
        Unit<ELEMENT, Whole> u;
        Value y[Whole];
        u.load(x + i);
#pragma unroll
        for (int v = 0; v < Whole; v++) y[v] = (u.get(v) - m.mean) * factor;
        affine(p, out, i, aligned, y);
    }
#pragma unroll 1
    for (u32 k = threadIdx.x; pieces.rest(k) < pieces.end; k += blockDim.x) {
        const i64 i = pieces.rest(k);
        affine<1>(p, out, i, true, {(widen(x[i]) - m.mean) * factor});
    }
}

// Kernels of units (u) and of elements (e), which may lie at any address; the number is elements of a thread at most.
// Blocks of those of 32 have as many threads as leave each the registers for it.
KERNEL(norm_u8)(const Norm p) { rows<Whole, 8 / Whole>(p); }
extern "C" __global__ void __launch_bounds__(1024) GLUE(norm_e8, ELEMENT)(const Norm p) { rows<1, 8>(p); }
extern "C" __global__ void __launch_bounds__(sizeof(ELEMENT) == 2 ? 1024 : 512) GLUE(norm_u32, ELEMENT)(const Norm p) {
    rows<Whole, Most / Whole>(p);
}
