// types: u32 u64
//
// Long rows are sorted by their digits of 8 bits, the lowest first, each pass stable: tiles of a row count their digits
// (count), the counts become the places where each tile's digits begin (scan), and tiles move what they have (move). The
// first pass makes the keys of the elements that it reads, and the last makes elements of keys and writes the results:
// passes read and write little more than what they must.
#include "sort.cuh"

constexpr int Tile = 4096, Items = Tile / Threads;
constexpr int Some = 4; // elements of a thread of sort_keys at a time

// sort_keys makes keys of the elements of rows that do not lie side by side, so that they are read once.
KERNEL(sort_keys)(const Sort p) {
    i64 at[3] = {};
    place(p.kept, p.row + blockIdx.y, at);
    Key *keys = p.keys + blockIdx.y * p.n;
    const i64 step = i64(gridDim.x) * Threads;
#pragma unroll 1
    for (i64 i = i64(blockIdx.x) * Threads + threadIdx.x; i < p.n; i += Some * step) {
        i64 from[Some];
        Key bits[Some];
#pragma unroll
        for (int m = 0; m < Some; m++) from[m] = at[0] + min(i + m * step, p.n - 1) * p.xStride;
        elements(p, from, bits);
#pragma unroll
        for (int m = 0; m < Some; m++)
            if (i + m * step < p.n) keys[i + m * step] = keyOf(p, bits[m]);
    }
}

__device__ inline u32 digit(const Sort &p, Key key) { return u32(key >> p.shift) & 255; }

template <class From> __device__ inline void read(const From *tile, u32 i, u32 step, u32 here, Key (&bits)[Items]) {
#pragma unroll
    for (u32 j = 0; j < Items; j++) bits[j] = i + j * step < here ? tile[i + j * step] : 0;
}

// load reads the keys i, i+step ... of this block's tile, in which as many are as here says; those behind are the greatest.
// Without keys they are those of the elements that lie side by side from x0 on.
__device__ inline void load(const Sort &p, i64 x0, u32 here, u32 i, u32 step, Key (&keys)[Items]) {
    const i64 first = i64(blockIdx.x) * Tile;
    if (p.keys) read(p.keys + blockIdx.y * p.n + first, i, step, here, keys);
    else if (p.size == sizeof(Key)) read(static_cast<const Key *>(p.x) + x0 + first, i, step, here, keys);
    else if (p.size == 2) read(static_cast<const u16 *>(p.x) + x0 + first, i, step, here, keys);
    else read(static_cast<const u8 *>(p.x) + x0 + first, i, step, here, keys);
#pragma unroll
    for (u32 j = 0; j < Items; j++) {
        if (!p.keys) keys[j] = keyOf(p, keys[j]);
        if (i + j * step >= here) keys[j] = ~Key(0);
    }
}

// present is the number of elements in this block's tile.
__device__ inline u32 present(const Sort &p) { return u32(min(i64(Tile), p.n - i64(blockIdx.x) * Tile)); }

// sort_count counts the digits of a tile.
KERNEL(sort_count)(const Sort p) {
    __shared__ u32 counts[256];
    counts[threadIdx.x] = 0;
    __syncthreads();
    const u32 here = present(p);
    i64 at[3] = {};
    place(p.kept, p.row + blockIdx.y, at);
    Key keys[Items];
    load(p, at[0], here, threadIdx.x, Threads, keys);
#pragma unroll
    for (u32 j = 0; j < Items; j++)
        if (threadIdx.x + j * Threads < here) atomicAdd(&counts[digit(p, keys[j])], 1);
    __syncthreads();
    p.counts[(i64(blockIdx.y) * 256 + threadIdx.x) * p.tiles + blockIdx.x] = counts[threadIdx.x];
}

// sort_scan replaces the counts of one digit in a row's tiles by the sums of those before. Where there are few tiles each
// thread of a block does it for a digit.
KERNEL(sort_scan)(const Sort p) {
    if (gridDim.x == 1) {
        u32 *counts = p.counts + (i64(blockIdx.y) * 256 + threadIdx.x) * p.tiles, sum = 0;
#pragma unroll 4
        for (u32 i = 0; i < p.tiles; i++) {
            const u32 c = counts[i];
            counts[i] = sum;
            sum += c;
        }
        p.totals[blockIdx.y * 256 + threadIdx.x] = sum;
        return;
    }
    u32 *counts = p.counts + (i64(blockIdx.y) * 256 + blockIdx.x) * p.tiles, sum = 0;
#pragma unroll 1
    for (u32 first = 0; first < p.tiles; first += 4 * Threads) {
        u32 c[4], own = 0, total;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 i = first + threadIdx.x * 4 + j;
            c[j] = i < p.tiles ? counts[i] : 0;
            own += c[j];
        }
        u32 at = sum + before(own, &total);
        sum += total;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 i = first + threadIdx.x * 4 + j;
            if (i < p.tiles) counts[i] = at;
            at += c[j];
        }
    }
    if (threadIdx.x == 0) p.totals[blockIdx.y * 256 + blockIdx.x] = sum;
}

// sort_move moves a tile's keys and places to where they belong by their digits. Each warp ranks what it has, in order, by
// asking its lanes which have the same digit; shared memory puts the tile in order, so that what lies side by side there is
// mostly written side by side.
extern "C" __global__ void __launch_bounds__(Threads, sizeof(Key) == 4 ? 4 : 3) GLUE(sort_move, ELEMENT)(const Sort p) {
    __shared__ u32 counts[Warps][256]; // of the warp's digits, and then their first ranks in the tile
    __shared__ u32 starts[256];        // where a digit's elements go, less their first rank
    __shared__ Key exchange[Tile];
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const i64 first = i64(blockIdx.x) * Tile, base = i64(blockIdx.y) * p.n;
    const u32 here = present(p);
#pragma unroll
    for (u32 w = 0; w < Warps; w++) counts[w][thread] = 0;
    __syncthreads();

    i64 at[3] = {};
    place(p.kept, p.row + blockIdx.y, at);
    Key keys[Items];
    u32 ranks[Items];
    load(p, at[0], here, warp * (Tile / Warps) + lane, 32, keys); // those that are not there are behind all
#pragma unroll
    for (u32 j = 0; j < Items; j++) {
        const u32 d = digit(p, keys[j]);
        u32 same = ~0u;
#pragma unroll
        for (u32 bit = 0; bit < 8; bit++) {
            const u32 vote = __ballot_sync(~0u, d >> bit & 1);
            same &= d >> bit & 1 ? vote : ~vote;
        }
        const u32 less = counts[warp][d];
        ranks[j] = less + __popc(same & ((1u << lane) - 1));
        __syncwarp();
        if (same >> lane == 1) counts[warp][d] = less + __popc(same); // the last of them
        __syncwarp();
    }
    __syncthreads();
    u32 count = 0, total;
#pragma unroll
    for (u32 w = 0; w < Warps; w++) {
        const u32 c = counts[w][thread];
        counts[w][thread] = count;
        count += c;
    }
    const u32 rank = before(count, &total), start = before(p.totals[blockIdx.y * 256 + thread], &total);
#pragma unroll
    for (u32 w = 0; w < Warps; w++) counts[w][thread] += rank;
    starts[thread] = start + p.counts[(i64(blockIdx.y) * 256 + thread) * p.tiles + blockIdx.x] - rank;
    __syncthreads();
#pragma unroll
    for (u32 j = 0; j < Items; j++) {
        ranks[j] += counts[warp][digit(p, keys[j])];
        exchange[ranks[j]] = keys[j];
    }
    __syncthreads();
    u32 to[Items];
#pragma unroll
    for (u32 j = 0; j < Items; j++) {
        const u32 i = j * Threads + thread;
        keys[j] = exchange[i];
        to[j] = starts[digit(p, keys[j])] + i;
        if (i < here && p.placesOut) p.keysOut[base + to[j]] = keys[j];
    }
    __syncthreads();
    u32 *places = reinterpret_cast<u32 *>(exchange);
#pragma unroll
    for (u32 j = 0; j < Items; j++) {
        const u32 i = warp * (Tile / Warps) + j * 32 + lane;
        u32 place = u32(first) + i;
        if (p.places && i < here) place = p.places[base + first + i];
        places[ranks[j]] = place;
    }
    __syncthreads();
#pragma unroll
    for (u32 j = 0; j < Items; j++) {
        const u32 i = j * Threads + thread;
        if (i >= here) continue;
        if (p.placesOut) {
            p.placesOut[base + to[j]] = places[i];
            continue;
        }
        if (to[j] >= p.k) continue;
        if (p.indices) p.indices[at[2] + to[j] * p.indicesStride] = places[i];
        if (p.values) storeValue(p, at[1] + to[j] * p.valuesStride, valueOf(p, keys[j], at[0] + places[i] * p.xStride));
    }
}
