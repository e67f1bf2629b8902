// types: i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 bf16
//
// Reductions: many elements become one, for each element of the result.
//
// One kernel does all shapes. Some axes stay and count the results, the others say what each of them combines. A unit is
// what one load brings, V elements. `group` threads of a block share a result, or V results. Where the elements to combine
// lie side by side (rows), a unit is a piece of one result, and a group is neighbours; where the results do (columns), a
// unit is V results, and neighbours work on different ones. Either way neighbours read neighbours.
//
// Results of very many elements are split over blocks (grid.y): each leaves what it has, in the accumulator's type, and a
// second launch of the same kernel combines that. Nothing depends on the order in which blocks run.
#include "axes.cuh"

constexpr int Threads = 256;

constexpr u32 Root = 1, Mean = 2, Columns = 4, Peel = 8; // flags

struct Reduce {
    const ELEMENT *x;
    void *out;
    i64 outputs; // results, in units
    i64 n;       // what each combines: units, or elements where ends are peeled
    i64 chunk;   // units of one split
    i64 partial; // results in all, if what splits have is wanted; else 0
    f64 count;   // Mean divides by it
    u64 change;  // what is done to elements first: see the operations
    u64 finish;  // Any: turns the result around if it is 1
    u32 group;   // threads that share a result, a power of 2
    u32 flags;
    u32 type;    // of a result that is a float: 0 as the accumulator, 1 f16, 2 bf16
    u32 pad;
    Axes<2> kept;   // x, out
    Axes<1> folded; // x
};

template <class T> using Wide = typename Choose<isFloat<T>, Number<T>, i64>::type;

// lowest is the least number of T, or minus infinity.
template <class T> __device__ inline Number<T> lowest() {
    if constexpr (same<T, f64>) return -__longlong_as_double(0x7ff0000000000000);
    else if constexpr (isFloat<T>) return -fromBits(0x7f800000);
    else if constexpr (isSigned<T>) return T(u64(1) << (8 * sizeof(T) - 1));
    else return 0;
}

// Operations: before is what an element becomes, merge combines two accumulators, after finishes. What before does is said
// by masks, not by flags, of which the compiler would make a loop each.
template <class T> struct Sum {
    using Acc = Wide<T>;
    static constexpr bool Pieces = isFloat<T>;
    __device__ static Acc identity() { return 0; }
    // Squares where change is all ones, as it is where it is 0.
    __device__ static Acc before(const Reduce &p, Acc v) {
        if constexpr (same<Acc, f32>) {
            return v * fromBits((__float_as_uint(v) & u32(p.change)) | (0x3f800000 & ~u32(p.change)));
        } else if constexpr (same<Acc, f64>) {
            u64 b = u64(__double_as_longlong(v)), one = 0x3ff0000000000000;
            return v * __longlong_as_double(i64((b & p.change) | (one & ~p.change)));
        }
        return v;
    }
    __device__ static Acc merge(Acc a, Acc b) { return a + b; }
    __device__ static Acc after(const Reduce &p, Acc a) {
        if constexpr (isFloat<T>) {
            if (p.flags & Mean) a /= Acc(p.count);
            if (p.flags & Root) a = sqrt(a);
        }
        return a;
    }
};

template <class T> struct Prod {
    using Acc = Wide<T>;
    static constexpr bool Pieces = false;
    __device__ static Acc identity() { return 1; }
    __device__ static Acc before(const Reduce &, Acc v) { return v; }
    __device__ static Acc merge(Acc a, Acc b) { return a * b; }
    __device__ static Acc after(const Reduce &, Acc a) { return a; }
};

// Max is the minimum too, of elements turned around: change is the sign bit of floats, all bits of integers.
template <class T> struct Max {
    using Acc = Number<T>;
    static constexpr bool Pieces = false;
    __device__ static Acc identity() { return lowest<T>(); }
    __device__ static Acc before(const Reduce &p, Acc v) {
        if constexpr (same<Acc, f32>) return fromBits(__float_as_uint(v) ^ u32(p.change));
        else if constexpr (same<Acc, f64>) return __longlong_as_double(__double_as_longlong(v) ^ i64(p.change));
        else return v ^ Acc(p.change);
    }
    __device__ static Acc merge(Acc a, Acc b) {
        if constexpr (isFloat<T>) return a >= b || a != a ? a : b;
        else return a >= b ? a : b;
    }
    __device__ static Acc after(const Reduce &p, Acc a) { return before(p, a); }
};

// Any sees elements as bits: the modules of unsigned types have it, for all types of their size. change is the bits one of
// which says that an element is not zero. All are true if there is not any that is not: finish is 1 then, and elements are
// turned around too.
template <class T> struct Any {
    using Acc = u8;
    static constexpr bool Pieces = false;
    __device__ static Acc identity() { return 0; }
    __device__ static Acc before(const Reduce &p, T v) { return u8((v & T(p.change)) != 0) ^ u8(p.type); }
    __device__ static Acc merge(Acc a, Acc b) { return a | b; }
    __device__ static Acc after(const Reduce &p, Acc a) { return a ^ u8(p.finish); }
};

template <class Acc> __device__ inline void put(const Reduce &p, i64 at, Acc a) {
    if constexpr (same<Acc, f32>) {
        if (p.type == 1) {
            static_cast<f16 *>(p.out)[at] = narrow<f16>(a);
            return;
        }
        if (p.type == 2) {
            static_cast<bf16 *>(p.out)[at] = narrow<bf16>(a);
            return;
        }
    }
    static_cast<Acc *>(p.out)[at] = a;
}

// gather combines what this thread has to, from x on: units first+lane, and every group-th after that, below end.
template <class T, class Op, int V>
__device__ inline void gather(const Reduce &p, const T *x, i64 i, i64 end, typename Op::Acc (&acc)[V]) {
    const i64 step = p.group, stride = p.folded.stride[0][0];
    // Sums are made in pieces, so that what is small is not lost in a long chain of additions.
    constexpr i64 PieceUnits = Op::Pieces ? 32 : i64(1) << 40;
    while (i < end) {
        typename Op::Acc part[V];
#pragma unroll
        for (int v = 0; v < V; v++) part[v] = Op::identity();
        const i64 stop = min(end, i + PieceUnits * step);
        if (p.folded.rank <= 1) {
            const T *q = x + i * stride;
#pragma unroll 1
            for (; i < stop; i += 4 * step, q += 4 * step * stride) {
                Unit<T, V> u[4];
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (i + k * step < stop) u[k].load(q + k * step * stride);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if (i + k * step >= stop) break;
#pragma unroll
                    for (int v = 0; v < V; v++) part[v] = Op::merge(part[v], Op::before(p, u[k].get(v)));
                }
            }
        }
#pragma unroll 1
        for (; i < stop; i += step) {
            i64 at[1] = {0};
            place(p.folded, i, at);
            Unit<T, V> u;
            u.load(x + at[0]);
#pragma unroll
            for (int v = 0; v < V; v++) part[v] = Op::merge(part[v], Op::before(p, u.get(v)));
        }
#pragma unroll
        for (int v = 0; v < V; v++) acc[v] = Op::merge(acc[v], part[v]);
    }
}

template <class T, class Op, int V> __device__ inline void reduce(const Reduce &p) {
    using Acc = typename Op::Acc;
    const u32 thread = threadIdx.x, others = Threads / p.group;
    const bool columns = p.flags & Columns;
    const u32 lane = columns ? thread / others : thread % p.group;
    const i64 output = i64(blockIdx.x) * others + (columns ? thread % others : thread / p.group);
    const bool mine = output < p.outputs;

    Acc acc[V];
#pragma unroll
    for (int v = 0; v < V; v++) acc[v] = Op::identity();
    i64 at[2] = {0, 0};
    if (mine) {
        place(p.kept, output, at);
        const T *x = p.x + at[0];
        i64 n = p.n;
        if (V > 1 && p.flags & Peel) { // what no whole unit covers, at the ends of a row: the first split does it
            const i64 head = min(n, i64(-(u64(x) / sizeof(T)) % V)), whole = (n - head) / V;
            if (blockIdx.y == 0) {
#pragma unroll 1
                for (i64 i = lane; i < n - whole * V; i += p.group) {
                    Unit<T, 1> u;
                    u.load(x + (i < head ? i : i + whole * V));
                    acc[0] = Op::merge(acc[0], Op::before(p, u.get(0)));
                }
            }
            x += head;
            n = whole;
        }
        const i64 first = i64(blockIdx.y) * p.chunk;
        gather<T, Op, V>(p, x, first + lane, min(n, first + p.chunk), acc);
    }

    __shared__ Acc shared[V][Threads];
    if (columns) {
#pragma unroll 1
        for (u32 half = p.group / 2; half > 0; half /= 2) {
            __syncthreads();
#pragma unroll
            for (int v = 0; v < V; v++) shared[v][thread] = acc[v];
            __syncthreads();
            if (lane < half) {
#pragma unroll
                for (int v = 0; v < V; v++) acc[v] = Op::merge(acc[v], shared[v][thread + half * others]);
            }
        }
    } else {
#pragma unroll
        for (int w = 1; w < V; w *= 2)
#pragma unroll
            for (int v = 0; v + w < V; v += 2 * w) acc[v] = Op::merge(acc[v], acc[v + w]);
        using Word = typename Choose<sizeof(Acc) == 8 || isFloat<Acc>, Acc, int>::type; // what shuffles take
#pragma unroll 1
        for (u32 half = min(p.group, 32u) / 2; half > 0; half /= 2)
            acc[0] = Op::merge(acc[0], Acc(__shfl_down_sync(~0u, Word(acc[0]), half)));
        if (p.group > 32) {
            if (thread % 32 == 0) shared[0][thread / 32] = acc[0];
            __syncthreads();
            if (lane == 0) {
#pragma unroll 1
                for (u32 w = 1; w < p.group / 32; w++) acc[0] = Op::merge(acc[0], shared[0][thread / 32 + w]);
            }
        }
    }

    // Results go through shared memory so that the code that rounds them is here once.
    if (!mine || lane != 0) return;
#pragma unroll
    for (int v = 0; v < V; v++) shared[v][thread] = acc[v];
    const int results = columns ? V : 1;
    i64 stride = p.kept.stride[1][0] / V;
    if (p.partial) {
        at[1] = i64(blockIdx.y) * p.partial + output * results;
        stride = 1;
    }
#pragma unroll 1
    for (int v = 0; v < results; v++) put(p, at[1] + v * stride, Op::after(p, shared[v][thread]));
}

template <class T> constexpr int lanes = sizeof(T) == 1 ? 8 : full<T>; // of a unit: accumulators are wide

// Four blocks a multiprocessor: as many loads in flight as the memory wants.
#define REDUCE(name, Op, V)                                                                       \
    extern "C" __global__ void __launch_bounds__(Threads, 4) GLUE(name, ELEMENT)(const Reduce p) { \
        reduce<ELEMENT, Op<ELEMENT>, V>(p);                                                        \
    }

REDUCE(sum_1, Sum, 1)
REDUCE(prod_1, Prod, 1)
REDUCE(max_1, Max, 1)

// Units are not for the short integers that are rarely added up.
#define UNITS_u8 1
#define UNITS_i32 1
#define UNITS_i64 1
#define UNITS_u32 1
#define UNITS_u64 1
#define UNITS_f16 1
#define UNITS_f32 1
#define UNITS_f64 1
#define UNITS_bf16 1
#if GLUE(UNITS, ELEMENT)
REDUCE(sum_v, Sum, lanes<ELEMENT>)
REDUCE(max_v, Max, lanes<ELEMENT>)
#endif

#define BITS_u8 1
#define BITS_u16 1
#define BITS_u32 1
#define BITS_u64 1
#if GLUE(BITS, ELEMENT)
REDUCE(any_1, Any, 1)
REDUCE(any_v, Any, lanes<ELEMENT>)
#endif
