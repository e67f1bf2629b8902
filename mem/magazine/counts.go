package magazine

import "github.com/ashlar-go/ashlar/mem/internal/stats"

import "sync/atomic"

// counts are the blocks that one processorCache allocated and freed: small ones, then large ones. Only sums over all
// processors are meaningful, since a block may be allocated on one processor and freed on another.
type counts [2]poolCounts

type poolCounts struct {
	allocated stats.Sums // from a magazine
	freed     stats.Sums // into a magazine
	returned  stats.Sums // to the allocator below; its requested bytes are those requested there
}

// returnedCounts counts the blocks returned to the allocator below, small ones, then large ones. Cache.returning is
// held while a block is returned and counted, so sums count a block on its way as held.
type returnedCounts [2]struct{ n, bytes, asked atomic.Int64 }

func (k *counts) of(class uint32) *poolCounts { return &k[pool(class)] }

// pool returns 0 for small blocks and 1 for large ones.
func pool(class uint32) int {
	if class > smallSize/unit {
		return 1
	}
	return 0
}

func (s *returnedCounts) add(class uint32, bytes, asked int64) {
	to := &s[pool(class)]
	to.n.Add(1)
	to.bytes.Add(bytes)
	to.asked.Add(asked)
}

func (k *counts) add(other *counts) {
	for i := range k {
		k[i].allocated.Add(other[i].allocated)
		k[i].freed.Add(other[i].freed)
		k[i].returned.Add(other[i].returned)
	}
}

// held returns the blocks that were freed and not allocated again. Their requested bytes are those that the allocator
// below counts as requested, less those of live requests. So if the first request for a live block was larger than the
// current one, the difference is included.
func (f *poolCounts) held() stats.Sums {
	h := f.freed
	h.Sub(f.allocated)
	h.Sub(f.returned)
	return h
}

// lockAll takes every lock except flushing and that of the block table.
func (c *Cache) lockAll() {
	c.returning.Lock()
	for i := range c.processors {
		c.processors[i].mu.Lock()
	}
	c.depotsMu.Lock()
	for _, d := range c.depots {
		if d != nil {
			d.mu.Lock()
		}
	}
}

func (c *Cache) unlockAll() {
	for _, d := range c.depots {
		if d != nil {
			d.mu.Unlock()
		}
	}
	c.depotsMu.Unlock()
	for i := range c.processors {
		c.processors[i].mu.Unlock()
	}
	c.returning.Unlock()
}

// sum returns the sum of all counts. The caller holds every lock.
func (c *Cache) sum() (k counts) {
	for i := range c.processors {
		k.add(&c.processors[i].counts)
	}
	for i := range k {
		s := &c.returned[i]
		k[i].returned.Add(stats.Sums{N: s.n.Load(), Bytes: s.bytes.Load(), Requested: s.asked.Load()})
	}
	return k
}

// Held returns the number of cached blocks and their bytes. To the allocator below they are live.
func (c *Cache) Held() (n int, size int64) {
	c.lockAll()
	defer c.unlockAll()
	k := c.sum()
	small, large := k[0].held(), k[1].held()
	return int(small.N + large.N), small.Bytes + large.Bytes
}
