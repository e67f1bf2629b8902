// Package addrmap holds a map by address that many goroutines use at once.
package addrmap

import (
	"math/bits"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
)

// A Map is a map by address in shards, each with its own lock. The zero value is empty and ready.
type Map[V any] struct {
	shards [shardCount]Shard[V]
}

// shardCount is a power of two. From two busy cores 64 shards take 99 ns a pair and 1 takes 115; alone both take 90.
const shardCount = 64

// A Shard is a part of a Map under one lock. Its owner unlocks it.
type Shard[V any] struct {
	sync.Mutex
	At map[driver.Pointer]V // nil until Put
	_  [112]byte            // two cache lines a shard, so that neighbours do not slow each other
}

// Lock returns the shard of p, locked.
func (m *Map[V]) Lock(p driver.Pointer) *Shard[V] {
	// Addresses are multiples of large powers of two: a multiplication carries what differs into the top bits.
	hash := uint64(p) * 0x9E3779B97F4A7C15
	shard := &m.shards[hash>>(64-bits.TrailingZeros(shardCount))]
	shard.Lock()
	return shard
}

// Put adds an entry to a locked shard.
func (s *Shard[V]) Put(p driver.Pointer, v V) {
	if s.At == nil {
		s.At = make(map[driver.Pointer]V)
	}
	s.At[p] = v
}

// Each visits all entries, shard by shard, with one shard locked at a time. visit must not call the map.
func (m *Map[V]) Each(visit func(driver.Pointer, V)) {
	for i := range m.shards {
		shard := &m.shards[i]
		shard.Lock()
		for p, v := range shard.At {
			visit(p, v)
		}
		shard.Unlock()
	}
}
