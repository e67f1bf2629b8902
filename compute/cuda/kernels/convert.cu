// Conversions from one type to all others: convert4_f32 of f32 to those of which the wider of the two has 4 bytes, and so
// on, and convert_walk_f32. Operations have the numbers of dtype.DType. What is only moved is in move.cu.
//
// types: i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 e5m2 e4m3
#include "convert.cuh"
#include "elementwise.cuh"

using S = ELEMENT;

template <class T> struct Code;
#define CODE(T, n) template <> struct Code<T> { static constexpr u32 value = n; };
CODE(b8, 1) CODE(i8, 2) CODE(i16, 3) CODE(i32, 4) CODE(i64, 5) CODE(u8, 6) CODE(u16, 7) CODE(u32, 8) CODE(u64, 9)
CODE(f16, 10) CODE(f32, 11) CODE(f64, 12) CODE(bf16, 13) CODE(e5m2, 16) CODE(e4m3, 17)

// Results are bits: elements of size bytes, which all threads agree on, in words of at most W bytes.
template <int W> struct Bits {};

template <int W, int V> struct Pack<Bits<W>, V> {
    typename Choose<W == 8, u64, u32>::type e[V];
    u32 size;

    __device__ void put(int v, void *base, i64 i) const {
        switch (size) {
        case 1: ((u8 *)base)[i] = e[v]; break;
        case 2: ((u16 *)base)[i] = e[v]; break;
        case 4: ((u32 *)base)[i] = e[v]; break;
        case 8: ((u64 *)base)[i] = e[v]; break;
        }
    }
    template <class T> __device__ void storeAs(void *base, i64 i) const {
        Pack<T, V> t;
#pragma unroll
        for (int v = 0; v < V; v++) t.e[v] = e[v];
        t.store(base, i);
    }
    __device__ void store(void *base, i64 i) const {
        switch (size) {
        case 1: storeAs<u8>(base, i); break;
        case 2: if constexpr (W >= 2) storeAs<u16>(base, i); break;
        case 4: if constexpr (W >= 4) storeAs<u32>(base, i); break;
        case 8: if constexpr (W >= 8) storeAs<u64>(base, i); break;
        }
    }
};

template <int size> struct Word;
template <> struct Word<1> { using type = u8; };
template <> struct Word<2> { using type = u16; };
template <> struct Word<4> { using type = u32; };
template <> struct Word<8> { using type = u64; };

// Conversions to the types that are W bytes wide, or whose source is; 0 is all. Those that only move bits are not among
// them, nor are those of integers to signed ones, which have the bits of unsigned ones.
template <int W> struct Conversions {
    u32 op;

    template <class D, class P> __device__ void to(P &p) const {
        constexpr int n = P::n;
        constexpr int width = sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S);
        constexpr bool moves = same<D, S> || (isInteger<D> && isInteger<S> && sizeof(D) == sizeof(S));
        constexpr bool twin = isSigned<D> && isInteger<S>;
        if constexpr ((W == 0 || W == width) && !moves && !twin) {
            p.d.size = sizeof(D);
            S s[n];
            D d[n];
#pragma unroll
            for (int v = 0; v < n; v++) s[v] = p.a.element(v);
            convertAll(s, d);
#pragma unroll
            for (int v = 0; v < n; v++) {
                typename Word<sizeof(D)>::type bits;
                memcpy(&bits, &d[v], sizeof d[v]);
                p.d.e[v] = bits;
            }
        }
    }
    template <class P> __device__ void operator()(P &p) const {
        switch (op) {
#define CASE(D) case Code<D>::value: to<D>(p); break;
            CASE(b8) CASE(i8) CASE(i16) CASE(i32) CASE(i64) CASE(u8) CASE(u16) CASE(u32) CASE(u64)
            CASE(f16) CASE(f32) CASE(f64) CASE(bf16) CASE(e5m2) CASE(e4m3)
        }
    }
};

#define SIZE_i8 1
#define SIZE_u8 1
#define SIZE_e5m2 1
#define SIZE_e4m3 1
#define SIZE_i16 2
#define SIZE_u16 2
#define SIZE_f16 2
#define SIZE_bf16 2
#define SIZE_i32 4
#define SIZE_u32 4
#define SIZE_f32 4
#define SIZE_i64 8
#define SIZE_u64 8
#define SIZE_f64 8
#define SIZE GLUE(SIZE, ELEMENT)

#if SIZE <= 1
KERNEL(convert1)(const __grid_constant__ Operands p) { vectors<8, 4, Bits<1>, S>(p, Conversions<1>{p.op}); }
#endif
#if SIZE <= 2
KERNEL(convert2)(const __grid_constant__ Operands p) { vectors<8, 4, Bits<2>, S>(p, Conversions<2>{p.op}); }
#endif
#if SIZE <= 4
KERNEL(convert4)(const __grid_constant__ Operands p) { vectors<4, 4, Bits<4>, S>(p, Conversions<4>{p.op}); }
#endif
KERNEL(convert8)(const __grid_constant__ Operands p) { vectors<2, 4, Bits<8>, S>(p, Conversions<8>{p.op}); }
KERNEL(convert_walk)(const __grid_constant__ Operands p) { walk<Bits<8>, S>(p, Conversions<0>{p.op}); }
