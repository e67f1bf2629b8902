// types: f16 f32 f64 bf16
//
// Softmax: exp(x-max)/sum of exp(x-max) along an axis, or its logarithm.
//
// Rows that fit in the registers of a block are read once (rows). Longer ones, and those that are too few to fill the
// device, are split over blocks: a first launch finds each split's maximum and sum (part), a second one combines those of a
// row and writes (write). Where the axis is not what lies side by side, neighbours take different results (columns), and
// the elements are read twice.
#include "rows.cuh"

using Value = Number<ELEMENT>;

struct Softmax {
    const ELEMENT *x;
    ELEMENT *out;
    Value *parts; // [rows][splits] of maximum and sum
    i64 rows, n;
    i64 chunk;             // elements of one split
    i64 xStride, outStride; // along the axis, for columns
    u32 splits;
    u32 group; // threads that share a row
    u32 log;   // 1: the logarithm
    u32 pad;
    Axes<2> kept; // x, out
};

template <class N> __device__ inline N least();
template <> __device__ inline f32 least<f32>() { return -fromBits(0x7f800000); }
template <> __device__ inline f64 least<f64>() { return -__longlong_as_double(0x7ff0000000000000); }

// A Total is the maximum of some elements and the sum of exp(x-maximum) over them.
struct Total {
    Value maximum, sum;
    __device__ static Total none() { return {least<Value>(), 0}; }
    __device__ static Total xored(Total a, u32 by) {
        return {__shfl_xor_sync(~0u, a.maximum, by), __shfl_xor_sync(~0u, a.sum, by)};
    }
};

// Of float64 these are long, and called.
__device__ inline f32 power(f32 x) { return exp(x); }
__device__ __noinline__ f64 power(f64 x) { return exp(x); }
__device__ inline f32 logarithm(f32 x) { return log(x); }
__device__ __noinline__ f64 logarithm(f64 x) { return log(x); }

// baseOf is what to subtract instead of a maximum of minus infinity, so that exp makes 0 of that.
__device__ inline Value baseOf(Value maximum) { return maximum == least<Value>() ? 0 : maximum; }

__device__ inline Total merge(Total a, Total b) {
    Value m = greater(a.maximum, b.maximum), base = baseOf(m);
    return {m, a.sum * power(a.maximum - base) + b.sum * power(b.maximum - base)};
}

// A Finish makes results: exp(x-maximum)/sum, or its logarithm.
struct Finish {
    Value maximum, factor, less;
    __device__ inline Finish(const Softmax &p, Total t) : maximum(t.maximum), factor(1), less(0) {
        if (p.log) less = logarithm(t.sum);
        else factor = 1 / t.sum;
    }
    __device__ inline Value of(const Softmax &p, Value x) const {
        return p.log ? x - maximum - less : power(x - maximum) * factor;
    }
};

template <int V, int R> __device__ inline void rows(const Softmax &p) {
    __shared__ Value shared[2][32];
    const u32 lane = threadIdx.x % p.group;
    const i64 row = i64(blockIdx.x) * (blockDim.x / p.group) + threadIdx.x / p.group;
    i64 at[2] = {0, 0};
    if (row < p.rows) place(p.kept, row, at);
    const Pieces<ELEMENT, V> pieces(p.x + at[0], 0, row < p.rows ? p.n : 0);
    Row<ELEMENT, V, R> x;
    x.load(p.x + at[0] + pieces.head, u32(pieces.tail - pieces.head) / V, p.group, lane, least<Value>());
    const i64 rest = pieces.rest(lane); // one more element for each of the first threads, if units are not aligned
    Value more = rest < pieces.end ? widen(p.x[at[0] + rest]) : least<Value>();
    Value m = more, sum = 0;
#pragma unroll
    for (int i = 0; i < R * V; i++) m = greater(m, x.value[i]);
    m = maxAcross(m, least<Value>(), p.group, shared[0]);
#pragma unroll
    for (int i = 0; i < R * V; i++) {
        Value e = power(x.value[i] - m);
        sum += e;
        x.value[i] = p.log ? x.value[i] - m : e;
    }
    const Value e = power(more - m);
    sum = sumAcross(sum + e, p.group, shared[1]);
    const Finish f(p, Total{m, sum});
    if (rest < pieces.end) p.out[at[1] + rest] = narrow<ELEMENT>((p.log ? more - m : e) * f.factor - f.less);
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (!x.here(r)) continue;
        Unit<ELEMENT, V> u;
#pragma unroll
        for (int v = 0; v < V; v++) u.set(v, x.value[r * V + v] * f.factor - f.less);
        u.store(p.out + at[1] + pieces.head + x.at(r));
    }
}

// total is that of the elements of x from i on, step apart (V at a time), below end.
template <int V> __device__ inline Total total(const ELEMENT *x, i64 i, i64 end, i64 step, i64 stride) {
    Total t = Total::none();
    constexpr int N = V > 4 ? V : 4, U = N / V; // elements and units at once
#pragma unroll 1
    for (; i < end; i += U * step) {
        Value v[N];
        Unit<ELEMENT, V> u[U];
#pragma unroll
        for (int k = 0; k < U; k++)
            if (i + k * step < end) u[k].load(x + (i + k * step) * stride);
        Value m = t.maximum;
#pragma unroll
        for (int k = 0; k < N; k++) {
            v[k] = i + k / V * step < end ? u[k / V].get(k % V) : least<Value>();
            m = greater(m, v[k]);
        }
        const Value base = baseOf(m);
        t.sum *= power(t.maximum - base);
        t.maximum = m;
#pragma unroll
        for (int k = 0; k < N; k++) t.sum += power(v[k] - base);
    }
    return t;
}

constexpr int Whole = full<ELEMENT>, Most = same<ELEMENT, f64> ? 16 : 32; // elements of a unit, and of a thread

KERNEL(softmax_part)(const Softmax p) {
    __shared__ Total shared[32];
    i64 at[2] = {0, 0};
    const i64 row = blockIdx.x / p.splits, split = blockIdx.x % p.splits;
    place(p.kept, row, at);
    const ELEMENT *x = p.x + at[0];
    const Pieces<ELEMENT, Whole> pieces(x, split * p.chunk, min(p.n, (split + 1) * p.chunk));
    Total t = total<Whole>(x, pieces.head + threadIdx.x * Whole, pieces.tail, blockDim.x * Whole, 1);
    const i64 rest = pieces.rest(threadIdx.x);
    if (rest < pieces.end) t = merge(t, Total{widen(x[rest]), 1});
    t = across(t, Total::none(), blockDim.x, shared, merge);
    if (threadIdx.x != 0) return;
    Value *to = p.parts + i64(blockIdx.x) * 2;
    to[0] = t.maximum, to[1] = t.sum;
}

KERNEL(softmax_write)(const Softmax p) {
    __shared__ Total shared[32];
    i64 at[2] = {0, 0};
    const i64 row = blockIdx.x / p.splits, split = blockIdx.x % p.splits;
    place(p.kept, row, at);
    Total t = Total::none();
    const Value *from = p.parts + row * p.splits * 2;
#pragma unroll 1
    for (u32 s = threadIdx.x; s < p.splits; s += blockDim.x) t = merge(t, Total{from[2 * s], from[2 * s + 1]});
    const Finish f(p, across(t, Total::none(), blockDim.x, shared, merge));
    const ELEMENT *x = p.x + at[0];
    ELEMENT *out = p.out + at[1];
    Pieces<ELEMENT, Whole> pieces(x, split * p.chunk, min(p.n, (split + 1) * p.chunk));
    if (u64(out + pieces.head) % 16 != 0) pieces.head = pieces.tail = pieces.first; // no units that both have
#pragma unroll 1
    for (i64 i = pieces.head + threadIdx.x * Whole; i < pieces.tail; i += blockDim.x * Whole) {
        Unit<ELEMENT, Whole> u, y;
        u.load(x + i);
#pragma unroll
        for (int v = 0; v < Whole; v++) y.set(v, f.of(p, u.get(v)));
        y.store(out + i);
    }
#pragma unroll 1
    for (u32 k = threadIdx.x; pieces.rest(k) < pieces.end; k += blockDim.x) {
        const i64 i = pieces.rest(k);
        out[i] = narrow<ELEMENT>(f.of(p, widen(x[i])));
    }
}

// columns gives each of 256/group neighbours a result, or what softmax is of it, and `group` threads the axis.
__device__ inline void columns(const Softmax &p) {
    __shared__ Total shared[256];
    const u32 thread = threadIdx.x, others = 256 / p.group, lane = thread / others;
    const i64 row = i64(blockIdx.x) * others + thread % others;
    i64 at[2] = {0, 0};
    Total t = Total::none();
    if (row < p.rows) {
        place(p.kept, row, at);
        t = total<1>(p.x + at[0], lane, p.n, p.group, p.xStride);
    }
    shared[thread] = t;
#pragma unroll 1
    for (u32 half = p.group / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) shared[thread] = merge(shared[thread], shared[thread + half * others]);
    }
    __syncthreads();
    if (row >= p.rows) return;
    const Finish f(p, shared[thread % others]);
    const ELEMENT *x = p.x + at[0];
    ELEMENT *out = p.out + at[1];
#pragma unroll 4
    for (i64 i = lane; i < p.n; i += p.group) out[i * p.outStride] = narrow<ELEMENT>(f.of(p, widen(x[i * p.xStride])));
}

// Kernels of units (u), and of elements (e), for results that are not aligned as x is. Rows of u8 begin and end with whole
// units, for which there may be too few threads otherwise. The number is elements of a thread at most.
KERNEL(softmax_u8)(const Softmax p) { rows<Whole, 8 / Whole>(p); }
extern "C" __global__ void __launch_bounds__(1024) GLUE(softmax_e8, ELEMENT)(const Softmax p) { rows<1, 8>(p); }
extern "C" __global__ void __launch_bounds__(1024) GLUE(softmax_u32, ELEMENT)(const Softmax p) { rows<Whole, Most / Whole>(p); }
KERNEL(softmax_columns)(const Softmax p) { columns(p); }
