// types: u32 u64
//
// Rows of up to 2048 are sorted in shared memory (block). TopK of longer ones finds the k-th key digit by digit, the highest
// first, and keeps what is not above it (select).
#include "sort.cuh"

// An Entry is a key and its place in the row: one number where both fit into it.
template <class K> struct Entry;
template <> struct Entry<u32> {
    u64 both;
    __device__ static Entry of(u32 key, u32 place) { return {u64(key) << 32 | place}; }
    __device__ u32 place() const { return u32(both); }
    __device__ bool above(Entry b) const { return both > b.both; }
};
template <> struct Entry<u64> {
    u64 key;
    u32 at;
    __device__ static Entry of(u64 key, u32 place) { return {key, place}; }
    __device__ u32 place() const { return at; }
    __device__ bool above(Entry b) const { return key > b.key || (key == b.key && at > b.at); }
};

constexpr int BlockElements = 2048, BlockThreads = 512;

// sort_block sorts rows of x, or of keys, by a bitonic network: as many at once as a block can hold.
KERNEL(sort_block)(const Sort p) {
    __shared__ Entry<Key> shared[BlockElements];
    const i64 firstRow = i64(blockIdx.x) * (BlockElements / p.padded);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < BlockElements; i += BlockThreads) {
        const i64 row = firstRow + i / p.padded;
        const u32 place = i % p.padded;
        Key key = ~Key(0); // with a place behind the row's own: the last of all
        if (row < p.rows && place < p.n) {
            if (p.keys) {
                key = p.keys[row * p.n + place];
            } else {
                i64 at[3] = {};
                ::place(p.kept, p.row + row, at);
                key = keyOf(p, element(p, at[0] + place * p.xStride));
            }
        }
        shared[i] = Entry<Key>::of(key, place);
    }
#pragma unroll 1
    for (u32 size = 2; size <= p.padded; size *= 2) {
#pragma unroll 1
        for (u32 stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
#pragma unroll
            for (u32 t = threadIdx.x; t < BlockElements / 2; t += BlockThreads) {
                const u32 i = 2 * t - (t & (stride - 1)), j = i + stride;
                const Entry<Key> a = shared[i], b = shared[j];
                const bool descending = i & (p.padded - 1) & size;
                if (a.above(b) != descending) shared[i] = b, shared[j] = a;
            }
        }
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < BlockElements; i += BlockThreads) {
        const i64 row = firstRow + i / p.padded;
        const u32 j = i % p.padded;
        if (row >= p.rows || j >= p.k) continue;
        i64 at[3] = {};
        ::place(p.kept, p.row + row, at);
        const u32 from = shared[i].place();
        emit<1>(p, at, j, 0, {p.places ? p.places[row * p.n + from] : from});
    }
}

// sort_select leaves the k least keys of a part of a row, in the order of their places, of x or of keys.
KERNEL(sort_select)(const Sort p) {
    __shared__ u32 counts[256];
    __shared__ u32 chosen, needed;
    const u32 thread = threadIdx.x;
    const i64 row = p.row + blockIdx.y, first = i64(blockIdx.x) * p.part;
    const i64 end = blockIdx.x + 1 == p.parts ? p.n : first + p.part;
    i64 at[3] = {};
    place(p.kept, row, at);
    auto key = [&](i64 i) {
        if (p.keys) return p.keys[blockIdx.y * p.n + i];
        return keyOf(p, element(p, at[0] + i * p.xStride));
    };

    Key found = 0, looked = 0; // the digits of the k-th key that are known, and which those are
    u32 need = u32(p.k);       // how many are wanted of those with these digits
#pragma unroll 1
    for (int shift = int(p.size) * 8 - 8; shift >= 0; shift -= 8) {
        counts[thread] = 0;
        __syncthreads();
#pragma unroll 4
        for (i64 i = first + thread; i < end; i += Threads) {
            const Key k = key(i);
            if ((k & looked) == found) atomicAdd(&counts[u32(k >> shift) & 255], 1);
        }
        __syncthreads();
        const u32 c = counts[thread];
        u32 total;
        const u32 less = before(c, &total);
        if (less < need && need <= less + c) chosen = thread, needed = need - less;
        __syncthreads();
        found |= Key(chosen) << shift;
        looked |= Key(255) << shift;
        need = needed;
    }

    u32 below = 0, equal = 0; // how many have been seen
    const i64 out = (i64(blockIdx.y) * p.parts + blockIdx.x) * p.k;
#pragma unroll 1
    for (i64 i = first; i < end && below + min(equal, need) < p.k; i += Threads) {
        const Key k = i + thread < end ? key(i + thread) : ~Key(0);
        const bool is = i + thread < end;
        u32 total;
        const u32 seen = before((is && k < found ? 1 : 0) | (is && k == found ? 1 << 16 : 0), &total);
        const u32 b = below + (seen & 0xffff), e = equal + (seen >> 16);
        if (is && (k < found || (k == found && e < need))) {
            const i64 to = out + b + min(e, need);
            p.keysOut[to] = k;
            p.placesOut[to] = p.places ? p.places[blockIdx.y * p.n + i + thread] : u32(i + thread);
        }
        below += total & 0xffff, equal += total >> 16;
    }
}
