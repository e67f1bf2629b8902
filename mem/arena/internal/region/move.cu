// Runs of bytes slide down within one range of memory, in one pass: what kernel.go launches.
//
// Bytes are counted in grains of 512, one for a warp to carry. The grains of all runs, in order, are cut into chunks of
// 64, one for a block of threads. A block has its chunk in registers, says so with a flag, waits until every chunk whose
// source lies where its own grains go has said so too, and only then stores. Those are chunks before it: sources and
// destinations ascend and every grain goes down. And blocks take chunks in order, by a ticket, so that each chunk that
// is waited for is in the hands of a block that runs. Loads wait for nothing, so there is no chain from chunk to chunk,
// however small the shift.
//
// A load of one block and the store of another to the same address are ordered so (PTX ISA, "Memory Consistency
// Model"): load, bar.sync, release of the flag; its acquire, bar.sync, store. A load that is before a store in causality
// order does not see it. The barrier is one that needs what was loaded, so the loads are over and not only under way.
//
// Flags are a ring: chunk s of all that were ever moved uses flag s % ring, and writes s / ring + 1 there, after the
// chunk that used it last. Nobody clears them, and a greater value says that all earlier users have loaded, too.

const unsigned grain = 512, chunk = 64, threads = 256, held = chunk * 32 / threads;
const unsigned ringBits = 12;
const unsigned lanes = ~0u; // of a warp, every one

// A row is a run: its first grain among all grains that move, where that goes and comes from, and the number of grains.
struct __align__(16) row {
    unsigned first, to, from, n;
};

// probe is what before compares first, whatever its key: who asks early does not wait for it later.
static __device__ unsigned probe(const row *rows, unsigned n, bool source) {
    unsigned step = (n + 15) / 16, at = (threadIdx.x % 16 + 1) * step - 1;
    return at < n ? source ? rows[at].from : rows[at].first : 0;
}

// before is the number of rows whose first (or from) is at most key. It is work for a warp, each half of which has a key of
// its own. found is probe.
static __device__ unsigned before(const row *rows, unsigned n, bool source, unsigned key, unsigned found) {
    const unsigned lane = threadIdx.x % 16, half = threadIdx.x & 16;
    unsigned low = 0, high = n; // the rows below low are, those from high on are not
    for (;;) {
        unsigned step = (high - low + 15) / 16;
        bool below = low + (lane + 1) * step - 1 < high && found <= key;
        unsigned steps = __popc(__ballot_sync(lanes, below) >> half & 0xffff);
        if (low < high) {
            high = min(high, low + (steps + 1) * step - 1);
            low += steps * step;
        }
        if (!__any_sync(lanes, low < high))
            return low;
        unsigned at = low + (lane + 1) * ((high - low + 15) / 16) - 1;
        found = at < high ? source ? rows[at].from : rows[at].first : 0;
    }
}

// loaded reports whether chunk s has said that it is loaded.
static __device__ bool loaded(const unsigned *flags, unsigned long long s) {
    unsigned lap;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(lap) : "l"(flags + s % (1 << ringBits)) : "memory");
    return (int)(lap - ((unsigned)(s >> ringBits) + 1)) >= 0;
}

// publish says that chunk s is loaded.
static __device__ void publish(unsigned *flags, unsigned long long s) {
    while (s >> ringBits && !loaded(flags, s - (1 << ringBits)))
        ;
    unsigned lap = (unsigned)(s >> ringBits) + 1;
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flags + s % (1 << ringBits)), "r"(lap) : "memory");
}

// plan says where the grains from start on go and come from. It is work for a warp, which has room for the chunk's rows.
static __device__ void plan(unsigned *to, unsigned *from, row *own, const row *rows, unsigned n, unsigned start,
                            unsigned count, unsigned found) {
    const unsigned lane = threadIdx.x % 32, run = n > 1 ? before(rows, n, false, start, found) - 1 : 0;
    for (unsigned i = lane; i <= chunk && run + i < n; i += 32)
        own[i] = rows[run + i];
    __syncwarp();
    for (unsigned i = lane; i < count; i += 32) {
        unsigned at = 0; // the last of the runs that start at or before the grain
        for (unsigned step = chunk; step > 0; step /= 2)
            if (at + step <= chunk && run + at + step < n && own[at + step].first <= start + i)
                at += step;
        unsigned in = start + i - own[at].first;
        to[i] = own[at].to + in;
        from[i] = own[at].from + in;
    }
}

// rank is the number of grains that move from below the address key, a grain itself; plus one, with upTo, if that moves.
// It is work for a warp: each half has a key of its own.
static __device__ unsigned rank(const row *rows, unsigned n, unsigned key, bool upTo, unsigned found) {
    unsigned at = before(rows, n, true, key, found);
    if (at == 0)
        return 0;
    row r = rows[at - 1];
    return r.first + min(key - r.from + upTo, r.n);
}

// moveRuns moves one chunk for each block, of the given number of grains of n rows. *ticket counts the chunks that were
// ever moved; this launch begins at base.
extern "C" __global__ void __launch_bounds__(threads, 5)
moveRuns(char *memory, const row *rows, unsigned n, unsigned grains, unsigned *flags, unsigned long long *ticket,
         unsigned long long base) {
    __shared__ row own[chunk + 1];
    __shared__ unsigned to[chunk], from[chunk];      // of each grain
    __shared__ unsigned long long mine, low, high;   // this chunk; those to wait for, high not among them
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    const unsigned found = warp < 2 ? probe(rows, n, warp == 1) : 0;
    if (warp == 0) {
        unsigned index = 0;
        if (lane == 0)
            index = (mine = atomicAdd(ticket, 1ull)) - base;
        unsigned start = __shfl_sync(lanes, index, 0) * chunk;
        plan(to, from, own, rows, n, start, min(chunk, grains - start), found);
    }
    __syncthreads();
    const unsigned count = min(chunk, grains - (unsigned)(mine - base) * chunk);
    uint4 v[held];
#pragma unroll
    for (unsigned i = 0; i < held; i++) {
        unsigned k = i * (threads / 32) + warp;
        v[i] = k < count ? __ldcg((const uint4 *)(memory + (unsigned long long)from[k] * grain) + lane) : uint4{};
    }

    bool wait = false;
    if (warp == 1) { // meanwhile: which chunks come from where this one goes?
        unsigned at = rank(rows, n, to[lane < 16 ? 0 : count - 1], lane >= 16, found);
        unsigned long long a = base + __shfl_sync(lanes, at, 0) / chunk;
        unsigned long long b = min(mine, base + (__shfl_sync(lanes, at, 16) + chunk - 1) / chunk);
        if (lane == 0)
            low = a, high = b;
        for (unsigned long long s = a + lane; s < b && !wait; s += 32)
            wait = !loaded(flags, s);
    }
    unsigned seen = 0;
#pragma unroll
    for (unsigned i = 0; i < held; i++)
        seen |= v[i].x & v[i].y & v[i].z & v[i].w;
    // The barrier cannot be passed before the loads are over. If all words have all bits set it is a wait for nothing.
    wait = __syncthreads_or(wait | (seen == ~0u));
    if (threadIdx.x == 0)
        publish(flags, mine);
    const unsigned safe = wait ? from[0] : 0; // what goes there or behind it is only in the way of this chunk
#pragma unroll
    for (unsigned i = 0; i < held; i++) {
        unsigned k = i * (threads / 32) + warp;
        if (k < count && to[k] >= safe)
            __stcg((uint4 *)(memory + (unsigned long long)to[k] * grain) + lane, v[i]);
    }
    if (!wait)
        return;
    for (unsigned long long s = low + threadIdx.x; s < high; s += threads)
        while (!loaded(flags, s))
            ;
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < held; i++) {
        unsigned k = i * (threads / 32) + warp;
        if (k < count && to[k] < safe)
            __stcg((uint4 *)(memory + (unsigned long long)to[k] * grain) + lane, v[i]);
    }
}
