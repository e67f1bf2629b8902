package estimate

// cacheBlock is the number of tokens in a block of a cache of blocks, as vLLM's default.
const cacheBlock = 16

// A cache holds the keys and values of the tokens so far, for the tokens that follow.
type cache struct {
	kind   CacheKind
	batch  int64
	length int64        // tokens of each sequence that are stored or being stored
	layers [][2]*tensor // keys and values
}

// tokens is the number of tokens for which a cache that ends with n tokens has room.
func (k CacheKind) tokens(n int64) int64 {
	if k == BlockCache {
		return (n + cacheBlock - 1) / cacheBlock * cacheBlock
	}
	return n
}

// newCache makes a cache. All but a dynamic one get their memory at once.
func newCache(t *transformer, kind CacheKind, batch, longest int64) *cache {
	c := &cache{kind: kind, batch: batch, layers: make([][2]*tensor, t.Layers)}
	if kind == DynamicCache {
		return c
	}
	for i := range c.layers {
		c.layers[i] = c.allocate(t, kind.tokens(longest))
	}
	return c
}

func (c *cache) allocate(t *transformer, tokens int64) [2]*tensor {
	size := c.batch * tokens * t.KeyValue * t.compute
	return [2]*tensor{t.allocate(size, KVCache), t.allocate(size, KVCache)}
}

// store adds keys and values to the cache of a layer, and returns those of all tokens so far. It releases k and v,
// which are nil if one product made queries, keys and values. A dynamic cache is concatenated with them: a new one is
// allocated before the old one is freed (transformers' DynamicCache).
func (c *cache) store(t *transformer, layer int, k, v *value) (keys, values *value) {
	if c.kind == DynamicCache {
		old := c.layers[layer]
		c.layers[layer] = c.allocate(t, c.length)
		t.drop(old[:]...)
	}
	t.release(k, v)
	d := dim{"key", t.KeyValue * c.length * c.batch / t.tokens, t.compute}
	both := c.layers[layer]
	return &value{dim: d, memory: share(both[0])}, &value{dim: d, memory: share(both[1])}
}
