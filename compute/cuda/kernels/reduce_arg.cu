// types: i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 bf16
//
// Where the greatest element along an axis is: the first NaN, else the first of equals. The least is the greatest of
// elements turned around. Threads share results, and splits are made, as in reduce.cu.
//
// Most of the work is to find the greatest value, which is cheap; where it is matters once. So a thread looks at elements
// by batches, of several units, and remembers the greatest value and which batch had it first. Those that share a result
// agree on its value, and then those that have met it look at their batch again: the least place is the result.
#include "axes.cuh"

constexpr int Threads = 256;
constexpr u32 Columns = 4, Peel = 8; // flags, as in reduce.cu

struct ReduceArg {
    const ELEMENT *x;
    const i64 *from; // what x holds comes from there along the axis, if not null: x is what splits left
    ELEMENT *values; // for what splits have, else null
    i64 *out;
    i64 outputs;   // results, in units
    i64 n, stride; // the axis, in units of x; n is elements where ends are peeled
    i64 chunk;     // units of one split: there are 32 bits for the place of an element in it
    u64 change;    // turns elements around: the sign bits of 8 bytes of floats, all bits of integers, or 0
    u32 group;     // threads that share a result, a power of 2
    u32 flags;
    Axes<2> kept; // x, out
};

using Value = Number<ELEMENT>;

constexpr u32 Nowhere = ~u32(0);

__device__ inline Value lowest() {
    if constexpr (same<ELEMENT, f64>) return -__longlong_as_double(0x7ff0000000000000);
    else if constexpr (isFloat<ELEMENT>) return -fromBits(0x7f800000);
    else if constexpr (isSigned<ELEMENT>) return Value(u64(1) << (8 * sizeof(Value) - 1));
    else return 0;
}

// above orders numbers, with NaN above all.
__device__ inline bool above(Value a, Value b) {
    if constexpr (isFloat<ELEMENT>) return a > b || (a != a && b == b);
    else return a > b;
}

__device__ inline bool matches(Value a, Value b) {
    if constexpr (isFloat<ELEMENT>) return a == b || (a != a && b != b);
    else return a == b;
}

__device__ inline Value better(Value a, Value b) { return above(b, a) ? b : a; }

// greater overlooks a NaN.
__device__ inline Value greater(Value a, Value b) {
    if constexpr (same<Value, f32>) return fmaxf(a, b);
    else if constexpr (same<Value, f64>) return fmax(a, b);
    else return a > b ? a : b;
}

// eitherNaN is one instruction for two numbers.
__device__ inline bool eitherNaN(Value a, Value b) {
    if constexpr (isFloat<ELEMENT>) return !(a <= b) && !(a > b);
    else return false;
}

// A Batch is Depth units, `jump` apart.
template <int V, int Depth> struct Batch {
    Unit<ELEMENT, V> unit[Depth];

    // Where there are fewer, left of them, the first stands for the others.
    __device__ inline void load(const ELEMENT *x, i64 jump, u32 left) {
#pragma unroll
        for (int k = 0; k < Depth; k++) unit[k].load(x + (k < left ? k * jump : 0));
    }
    __device__ inline void turn(u64 change) {
        constexpr int Words = Unit<ELEMENT, V>::Words;
#pragma unroll
        for (int k = 0; k < Depth; k++)
#pragma unroll
            for (int w = 0; w < Words; w++) unit[k].word[w] ^= u32(change >> 32 * (w % 2));
    }
};

// A Scan is what a thread has of a split: units, of which elements belong to one result, R = 1, or to R = V.
template <int V, int R, int Depth> struct Scan {
    const ELEMENT *x; // the first unit
    i64 jump;         // from one to the next
    u32 units;
    Value most[R];
    u32 batch[R]; // that had it first: how many units were before

    __device__ inline void run(u64 change) {
#pragma unroll
        for (int r = 0; r < R; r++) most[r] = lowest(), batch[r] = 0;
        const ELEMENT *q = x;
#pragma unroll 1
        for (u32 done = 0; done < units; done += Depth, q += Depth * jump) {
            Batch<V, Depth> b;
            b.load(q, jump, units - done);
            b.turn(change);
            Value high;
            bool nan = false;
#pragma unroll
            for (int v = 0; v < V; v++) {
#pragma unroll
                for (int k = 0; k < Depth; k++) {
                    const Value e = b.unit[k].get(v);
                    high = k == 0 && (v == 0 || R > 1) ? e : greater(high, e);
                    if (k % 2) nan |= eitherNaN(b.unit[k - 1].get(v), e);
                }
                if (R == 1 && v < V - 1) continue;
                if (high > most[v % R]) most[v % R] = high, batch[v % R] = done; // never if that is NaN
            }
            if (!nan) continue;
#pragma unroll
            for (int k = 0; k < Depth; k++)
#pragma unroll
                for (int v = 0; v < V; v++)
                    if (above(b.unit[k].get(v), most[v % R])) most[v % R] = b.unit[k].get(v), batch[v % R] = done;
        }
    }
};

// find is the place of the first element that matches best in a batch of a thread, counted from the thread's first unit.
template <int V, int Depth>
__device__ inline u32 find(const ReduceArg &p, const ELEMENT *x, i64 jump, u32 units, u32 batch, Value best) {
    Batch<V, Depth> b;
    b.load(x + batch * jump, jump, units - batch);
    b.turn(p.change);
    u32 first = 0;
#pragma unroll
    for (int k = Depth - 1; k >= 0; k--)
#pragma unroll
        for (int v = V - 1; v >= 0; v--)
            if (matches(b.unit[k].get(v), best)) first = k * V + v;
    return (batch + first / V) * p.group * V + first % V;
}

template <int V, int R> __device__ inline void argmax(const ReduceArg &p) {
    constexpr int Depth = V == 1 ? 8 : 4, Pace = R == 1 ? V : 1; // Pace: elements of a result in a unit
    const u32 thread = threadIdx.x, shift = __ffs(p.group) - 1, others = Threads >> shift;
    const bool columns = p.flags & Columns;
    const u32 lane = columns ? thread * p.group / Threads : thread & (p.group - 1);
    const u32 slot = columns ? thread & (others - 1) : thread >> shift;
    const i64 output = i64(blockIdx.x) * others + slot, first = i64(blockIdx.y) * p.chunk;
    const bool mine = output < p.outputs;

    __shared__ u32 places[R][Threads]; // of the results, by slot
#pragma unroll
    for (int r = 0; r < R; r++) places[r][thread] = Nowhere;

    // Places count from the split's first unit, but for those before it.
    i64 at[2] = {0, 0};
    u32 head = 0;
    Scan<V, R, Depth> scan;
    scan.units = 0;
    Value edge = lowest(); // the best at the ends of a row, which no whole unit covers
    u32 edgePlace = Nowhere;
    if (mine) {
        place(p.kept, output, at);
        scan.x = p.x + at[0];
        i64 n = p.n;
        if (R == 1 && V > 1 && p.flags & Peel) {
            head = u32(-(u64(scan.x) / sizeof(ELEMENT)) % V);
            n = (p.n - head) / V;
            auto peel = [&](i64 from, i64 end) {
#pragma unroll 1
                for (i64 i = from + lane; i < end; i += p.group) {
                    Batch<1, 1> b;
                    b.load(scan.x + i, 0, 1);
                    b.turn(p.change);
                    if (edgePlace != Nowhere && !above(b.unit[0].get(0), edge)) continue;
                    edge = b.unit[0].get(0), edgePlace = u32(i - first * V);
                }
            };
            if (blockIdx.y == 0) peel(0, head);
            if (blockIdx.y == gridDim.y - 1) peel(head + n * V, p.n);
        }
        const i64 units = min(n, first + p.chunk) - first - lane;
        if (units > 0) scan.units = u32((units - 1 >> shift) + 1);
        scan.x += head + (first + lane) * p.stride;
        scan.jump = p.group * p.stride;
    }
    scan.run(p.change);

    __shared__ Value shared[R][Threads];
    Value best[R];
#pragma unroll
    for (int r = 0; r < R; r++) best[r] = scan.most[r];
    if (R == 1 && V > 1) best[0] = better(best[0], edge);
    if (columns) {
#pragma unroll 1
        for (u32 half = p.group / 2; half > 0; half /= 2) {
            __syncthreads();
#pragma unroll
            for (int r = 0; r < R; r++) shared[r][thread] = best[r];
            __syncthreads();
            if (lane < half) {
#pragma unroll
                for (int r = 0; r < R; r++) best[r] = better(best[r], shared[r][thread + half * others]);
            }
        }
        __syncthreads();
        if (lane == 0) {
#pragma unroll
            for (int r = 0; r < R; r++) shared[r][slot] = best[r];
        }
    } else {
        using Word = typename Choose<sizeof(Value) == 8 || isFloat<Value>, Value, int>::type; // what shuffles take
#pragma unroll 1
        for (u32 half = min(p.group, 32u) / 2; half > 0; half /= 2)
            best[0] = better(best[0], Value(__shfl_xor_sync(~0u, Word(best[0]), half)));
        if (p.group > 32) {
            if (thread % 32 == 0) shared[0][32 + thread / 32] = best[0];
            __syncthreads();
#pragma unroll 1
            for (u32 w = slot * p.group / 32; w < (slot + 1) * p.group / 32; w++) best[0] = better(best[0], shared[0][32 + w]);
        }
        if (lane == 0) shared[0][slot] = best[0];
    }
    __syncthreads();

    if constexpr (R == 1) {
        const Value agreed = shared[0][slot];
        u32 found = edgePlace != Nowhere && matches(edge, agreed) ? edgePlace : Nowhere;
        if (scan.units > 0 && matches(scan.most[0], agreed))
            found = min(found, head + lane * V + find<V, Depth>(p, scan.x, scan.jump, scan.units, scan.batch[0], agreed));
        if (found != Nowhere) atomicMin(&places[0][slot], found);
    } else {
        __shared__ u32 batches[R][Threads];
        u32 wanted = 0;
#pragma unroll
        for (int r = 0; r < R; r++) {
            batches[r][thread] = scan.batch[r];
            if (scan.units > 0 && matches(scan.most[r], shared[r][slot])) wanted |= 1 << r;
        }
#pragma unroll 1
        for (; wanted > 0; wanted &= wanted - 1) {
            const int r = __ffs(wanted) - 1;
            const u32 found = find<1, Depth>(p, scan.x + r, scan.jump, scan.units, batches[r][thread], shared[r][slot]);
            atomicMin(&places[r][slot], lane + found);
        }
    }
    __syncthreads();

    if (!mine || lane != 0) return;
#pragma unroll 1
    for (int r = 0; r < R; r++) {
        const i64 index = first * Pace + places[r][slot], from = at[0] + index * (p.stride / Pace) + r;
        i64 to = at[1] + r * (p.kept.stride[1][0] / R);
        if (p.values) {
            to = (blockIdx.y * p.outputs + output) * R + r;
            p.values[to] = p.x[from];
        }
        p.out[to] = p.from ? p.from[from] : index;
    }
}

template <class T> constexpr int lanes = sizeof(T) == 1 ? 8 : full<T>; // of a unit, as in reduce.cu

// Four blocks a multiprocessor, as many loads in flight as the memory wants, if registers hold what threads remember.
#define ARGMAX(name, V, R)                                                                                         \
    extern "C" __global__ void __launch_bounds__(Threads, R < 8 ? 4 : 3) GLUE(name, ELEMENT)(const ReduceArg p) { \
        argmax<V, R>(p);                                                                                           \
    }

ARGMAX(argmax_1, 1, 1)
ARGMAX(argmax_rows, lanes<ELEMENT>, 1)
ARGMAX(argmax_columns, lanes<ELEMENT>, lanes<ELEMENT>)
