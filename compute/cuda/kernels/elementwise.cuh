// The two ways in which element-by-element kernels go through memory; elementwise.go picks one.
//
//   vectors  along the fastest axis every operand lies in one piece, or stays where it is, and is aligned: each thread
//            moves a few vectors of V elements, all of whose loads are in flight at once.
//   walk     anyhow: each thread does a few elements.
//
// Both call compute(x) for V elements in registers, which sets x.d from x.a, x.b and x.c: it holds all operations on a
// type and picks one, the same for all threads. So there is one kernel for many operations, whose code is there once,
// whatever the number of vectors. The types of inputs that are not there are None.
//
// The result may be an input, in place: each element is read before it is written, by the same thread.
#pragma once
#include "index.cuh"

struct None {};

constexpr int Threads = 256; // of a block, in all of these kernels

struct Operands {
    void *at[4];  // dst, then inputs
    u64 value[2]; // of fill
    u32 op;
    u32 splats;   // of vectors: bit k: along the fastest axis operand k stays where it is
    u32 rest;     // of vectors: elements beyond the last whole one
    u32 unused;
    Walk<4> walk; // of vectors: n and shape[0] count vectors, and stride[...][0] is the step from one to the next
};

template <int size> struct Raw;
template <> struct Raw<0> { using type = u8; }; // of None
template <> struct Raw<1> { using type = u8; };
template <> struct Raw<2> { using type = u16; };
template <> struct Raw<4> { using type = u32; };
template <> struct Raw<8> { using type = uint2; };
template <> struct Raw<16> { using type = uint4; };

// opaque keeps the compiler from taking a vector apart as soon as it is loaded: it would wait for the first one before it
// loads the next.
__device__ inline void opaque(u8 &) {}
__device__ inline void opaque(u16 &x) { asm volatile("" : "+h"(x)); }
__device__ inline void opaque(u32 &x) { asm volatile("" : "+r"(x)); }
__device__ inline void opaque(uint2 &x) { opaque(x.x), opaque(x.y); }
__device__ inline void opaque(uint4 &x) { opaque(x.x), opaque(x.y), opaque(x.z), opaque(x.w); }

// A Pack is V elements, each in a register of its own.
template <class T, int V> struct Pack {
    T e[V];

    __device__ void get(int v, const void *base, i64 i) { e[v] = ((const T *)base)[i]; }
    __device__ void put(int v, void *base, i64 i) const { ((T *)base)[i] = e[v]; }
    __device__ T element(int v) const { return e[v]; }
    __device__ Number<T> number(int v) const { return widen(e[v]); }
    __device__ void set(const Number<T> (&x)[V], bool = false) {
#pragma unroll
        for (int v = 0; v < V; v++) e[v] = narrow<T>(x[v]);
    }
    __device__ void store(void *base, i64 i) const { // aligned
        typename Raw<sizeof(T) * V>::type raw;
        memcpy(&raw, e, sizeof raw);
        *(decltype(raw) *)((T *)base + i) = raw;
    }
};
// Of bfloat16, two elements are in a register: one instruction makes a number of either, and an element of a number takes
// fewer.
template <int V> struct Pack<bf16, V> {
    u32 w[V / 2];

    __device__ void get(int v, const void *base, i64 i) {
        u32 bits = ((const u16 *)base)[i];
        w[v / 2] = v % 2 ? w[v / 2] | bits << 16 : bits;
    }
    __device__ void put(int v, void *base, i64 i) const { ((u16 *)base)[i] = u16(w[v / 2] >> v % 2 * 16); }
    __device__ bf16 element(int v) const { return bf16{u16(w[v / 2] >> v % 2 * 16)}; }
    __device__ f32 number(int v) const { return fromBits(v % 2 ? w[v / 2] & 0xffff0000 : w[v / 2] << 16); }
    // A number in the middle of two goes to the even one. If it is an approximation, it may as well go away from 0, which is
    // less to do.
    __device__ void set(const f32 (&x)[V], bool approximate = false) {
        u32 r[V];
        bool nan = false;
#pragma unroll
        for (int v = 0; v < V; v += 2) nan |= (x[v] != x[v]) | (x[v + 1] != x[v + 1]);
        if (approximate) {
#pragma unroll
            for (int v = 0; v < V; v++) r[v] = __float_as_uint(x[v]) + 0x8000;
        } else {
#pragma unroll
            for (int v = 0; v < V; v++) {
                u32 b = __float_as_uint(x[v]);
                r[v] = b + 0x7fff + (b >> 16 & 1);
            }
        }
        if (nan) { // seldom, and one instruction asks of two
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (x[v] != x[v]) r[v] = quietNaN;
                opaque(r[v]);
            }
        }
#pragma unroll
        for (int v = 0; v < V; v += 2) w[v / 2] = __byte_perm(r[v], r[v + 1], 0x7632);
    }
    __device__ void store(void *base, i64 i) const {
        typename Raw<2 * V>::type raw;
        memcpy(&raw, w, sizeof raw);
        *(decltype(raw) *)((u16 *)base + i) = raw;
    }
};

template <int V> struct Pack<None, V> {
    __device__ void get(int, const void *, i64) {}
};

// A Vector is V elements as they lie in memory, on their way from there, or the one that all are.
template <class T, int V> struct Vector {
    typename Raw<sizeof(T) * V>::type raw;

    __device__ void load(const void *base, i64 i, bool splat) {
        const T *p = (const T *)base + i;
        if (!splat) {
            raw = *(const decltype(raw) *)p;
            return;
        }
        typename Raw<sizeof(T)>::type one = *(const decltype(one) *)p;
        memcpy(&raw, &one, sizeof one);
    }
    __device__ void unpack(Pack<T, V> &to, bool splat) const {
        auto whole = raw;
        opaque(whole);
        if (splat) repeat(whole);
        memcpy(&to, &whole, sizeof whole);
    }
    template <class R> static __device__ void repeat(R &whole) {
        typename Raw<sizeof(T)>::type one;
        memcpy(&one, &whole, sizeof one);
        if constexpr (sizeof one < 4 && sizeof whole >= 4) {
            u32 word = one * (sizeof one == 1 ? 0x01010101u : 0x00010001u), words[sizeof whole / 4];
            for (u32 &w : words) w = word;
            memcpy(&whole, words, sizeof whole);
        } else {
            decltype(one) all[V];
            for (auto &e : all) e = one;
            memcpy(&whole, all, sizeof whole);
        }
    }
};
template <int V> struct Vector<None, V> {
    __device__ void load(const void *, i64, bool) {}
    __device__ void unpack(Pack<None, V> &, bool) const {}
};

template <class D, class A, class B, class C, int V> struct Packs {
    static constexpr int n = V;
    Pack<D, V> d;
    Pack<A, V> a;
    Pack<B, V> b;
    Pack<C, V> c;
};

// vectors does U vectors of V elements a thread. The last block does what is less than a vector, if there is any, an
// element a thread: then dst has one axis.
template <int V, int U, class D, class A = None, class B = None, class C = None, class F>
__device__ inline void vectors(const Operands &p, F compute) {
    u32 first = blockIdx.x * (Threads * U) + threadIdx.x, end = min(p.walk.n, first + Threads * U);
    bool rest = p.rest > 0 && blockIdx.x == gridDim.x - 1;
    u32 splats = p.splats;
    Vector<A, V> a[U];
    Vector<B, V> b[U];
    Vector<C, V> c[U];
    i64 at[U][4], to[U];
    if (rest) {
        u32 t = threadIdx.x;
        if (t >= p.rest) return;
        first = p.walk.n, end = first + 1;
        locate(p.walk, first, 0, at);
        to[0] = at[0][0] + t;
        a[0].load(p.at[1], splats & 2 ? at[0][1] : at[0][1] + t, true);
        b[0].load(p.at[2], splats & 4 ? at[0][2] : at[0][2] + t, true);
        c[0].load(p.at[3], splats & 8 ? at[0][3] : at[0][3] + t, true);
    } else {
        locate(p.walk, first, Threads, at);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (first + u * Threads >= end) break;
            to[u] = at[u][0];
            a[u].load(p.at[1], at[u][1], splats & 2);
            b[u].load(p.at[2], at[u][2], splats & 4);
            c[u].load(p.at[3], at[u][3], splats & 8);
        }
    }
#pragma unroll 1
    for (u32 i = first; i < end; i += Threads) {
        Packs<D, A, B, C, V> x;
        a[0].unpack(x.a, splats & 2);
        b[0].unpack(x.b, splats & 4);
        c[0].unpack(x.c, splats & 8);
        compute(x);
        if (rest) x.d.put(0, p.at[0], to[0]);
        else x.d.store(p.at[0], to[0]);
#pragma unroll
        for (int u = 0; u + 1 < U; u++) a[u] = a[u + 1], b[u] = b[u + 1], c[u] = c[u + 1], to[u] = to[u + 1];
    }
}

// walk does W elements a thread.
template <class D, class A = None, class B = None, class C = None, class F>
__device__ inline void walk(const Operands &p, F compute) {
    constexpr int W = 4;
    u32 first = blockIdx.x * (Threads * W) + threadIdx.x;
    i64 at[W][4];
    Packs<D, A, B, C, W> x;
    locate(p.walk, first, Threads, at);
#pragma unroll
    for (int w = 0; w < W; w++) {
        if (first + w * Threads >= p.walk.n) break;
        x.a.get(w, p.at[1], at[w][1]);
        x.b.get(w, p.at[2], at[w][2]);
        x.c.get(w, p.at[3], at[w][3]);
    }
    compute(x);
#pragma unroll
    for (int w = 0; w < W; w++)
        if (first + w * Threads < p.walk.n) x.d.put(w, p.at[0], at[w][0]);
}
