package magazine

import "sync/atomic"

// counts are the blocks that came and went at one place: small ones and larger ones, as in statistics. Only their sums
// over all places mean anything: a block may come at one and go at another.
type counts [2]flows

type flows struct {
	lent flow // handed out of a magazine
	back flow // freed into one
	sent flow // given to the layer below, by Cache.sent; asked is what was asked of that
}

// sent are blocks that were given to the layer below, small and larger ones. They are counted as they are given, with
// Cache.sending held: who adds up finds those that are on their way held.
type sent [2]struct{ n, bytes, asked atomic.Int64 }

// A flow is so many blocks.
type flow struct{ n, bytes, asked int64 }

func (k *counts) of(class uint32) *flows { return &k[pool(class)] }

// pool is 0 for small blocks and 1 for larger ones.
func pool(class uint32) int {
	if class > smallSize/unit {
		return 1
	}
	return 0
}

func (s *sent) add(class uint32, bytes, asked int64) {
	to := &s[pool(class)]
	to.n.Add(1)
	to.bytes.Add(bytes)
	to.asked.Add(asked)
}

func (f *flow) add(bytes, asked int64) {
	f.n++
	f.bytes += bytes
	f.asked += asked
}

func (f *flow) plus(g flow, sign int64) {
	f.n += sign * g.n
	f.bytes += sign * g.bytes
	f.asked += sign * g.asked
}

func (k *counts) plus(other *counts) {
	for i := range k {
		k[i].lent.plus(other[i].lent, 1)
		k[i].back.plus(other[i].back, 1)
		k[i].sent.plus(other[i].sent, 1)
	}
}

// held is what came and did not go. Its asked is what the layer below counts as requested and nobody has requested,
// which includes, of blocks on loan, what their first borrowers asked for beyond the present ones.
func (f *flows) held() flow {
	h := f.back
	h.plus(f.lent, -1)
	h.plus(f.sent, -1)
	return h
}

// lock takes every lock but flushing and that of the records.
func (c *Cache) lock() {
	c.sending.Lock()
	for i := range c.racks {
		c.racks[i].mu.Lock()
	}
	c.growing.Lock()
	for _, d := range c.depots {
		if d != nil {
			d.mu.Lock()
		}
	}
}

func (c *Cache) unlock() {
	for _, d := range c.depots {
		if d != nil {
			d.mu.Unlock()
		}
	}
	c.growing.Unlock()
	for i := range c.racks {
		c.racks[i].mu.Unlock()
	}
	c.sending.Unlock()
}

// sum adds all counts up. The caller holds every lock.
func (c *Cache) sum() (k counts) {
	for i := range c.racks {
		k.plus(&c.racks[i].counts)
	}
	for i := range k {
		s := &c.sent[i]
		k[i].sent.plus(flow{s.n.Load(), s.bytes.Load(), s.asked.Load()}, 1)
	}
	return k
}

// Held returns how many blocks are held, and their bytes: to the layer below they are live.
func (c *Cache) Held() (n int, size int64) {
	c.lock()
	defer c.unlock()
	k := c.sum()
	small, large := k[0].held(), k[1].held()
	return int(small.n + large.n), small.bytes + large.bytes
}
