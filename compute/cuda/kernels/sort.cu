// types: u32 u64
//
// Long rows are sorted by their digits of 8 bits, the lowest first, each pass stable: tiles of a row count their digits
// (count), the counts become the places where each tile's digits begin (scan), and tiles move what they have (move).
#include "sort.cuh"

constexpr int Tile = 4096, Items = Tile / Threads;
constexpr int Some = 4; // elements of a thread at a time

// sort_keys makes keys of the elements of rows.
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

// sort_emit writes the results of rows.
KERNEL(sort_emit)(const Sort p) {
    i64 at[3] = {};
    place(p.kept, p.row + blockIdx.y, at);
    const u32 *places = p.places + blockIdx.y * p.n;
    const i64 step = i64(gridDim.x) * Threads;
#pragma unroll 1
    for (i64 j = i64(blockIdx.x) * Threads + threadIdx.x; j < p.k; j += Some * step) {
        u32 from[Some];
#pragma unroll
        for (int m = 0; m < Some; m++) from[m] = places[min(j + m * step, p.k - 1)];
        emit(p, at, j, step, from);
    }
}

__device__ inline u32 digit(const Sort &p, Key key) { return u32(key >> p.shift) & 255; }

// sort_count counts the digits of a tile.
KERNEL(sort_count)(const Sort p) {
    __shared__ u32 counts[256];
    counts[threadIdx.x] = 0;
    __syncthreads();
    const i64 first = i64(blockIdx.x) * Tile;
    const Key *keys = p.keys + blockIdx.y * p.n;
#pragma unroll
    for (int j = 0; j < Items; j++) {
        const i64 i = first + j * Threads + threadIdx.x;
        if (i < p.n) atomicAdd(&counts[digit(p, keys[i])], 1);
    }
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
KERNEL(sort_move)(const Sort p) {
    __shared__ u32 counts[Warps][256]; // of the warp's digits, and then their first ranks in the tile
    __shared__ u32 starts[256];        // where a digit's elements go, less their first rank
    __shared__ Key exchange[Tile];
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const i64 first = i64(blockIdx.x) * Tile, base = i64(blockIdx.y) * p.n;
    const u32 here = u32(min(i64(Tile), p.n - first));
#pragma unroll
    for (u32 w = 0; w < Warps; w++) counts[w][thread] = 0;
    __syncthreads();

    Key keys[Items];
    u32 ranks[Items];
#pragma unroll
    for (u32 j = 0; j < Items; j++) {
        const u32 i = warp * (Tile / Warps) + j * 32 + lane;
        keys[j] = i < here ? p.keys[base + first + i] : ~Key(0); // behind all that are there
    }
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
        const Key key = exchange[i];
        to[j] = starts[digit(p, key)] + i;
        if (i < here && p.keysOut) p.keysOut[base + to[j]] = key;
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
        if (i < here) p.placesOut[base + to[j]] = places[i];
    }
}
