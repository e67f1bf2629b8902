package remat

import (
	"errors"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A memory is the allocator of a runtime's place: a limit over the allocator of the device. A request without room
// evicts tensors and tries again, until nothing more can be evicted.
type memory struct {
	layer.Pass
	limit    *layer.Limiter
	makeRoom func(size int64) (freed int64)
	foreign  atomic.Int64 // bytes of constants elsewhere, which the limit leaves out
	peak     atomic.Int64 // the most bytes in use so far
	high     atomic.Int64 // the most bytes in use since restart
}

func newMemory(a mem.Allocator, budget int64, makeRoom func(int64) int64) *memory {
	l := layer.NewLimiter(a, budget)
	return &memory{Pass: layer.Pass{Below: l}, limit: l, makeRoom: makeRoom}
}

// Alloc implements mem.Allocator.
func (m *memory) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return m.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. All attempts but the last are tentative. With NoRetry nothing is evicted.
func (m *memory) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	tentative := o
	tentative.Tentative = true
	for !o.NoRetry {
		b, err := m.limit.AllocWith(s, size, tentative)
		if err == nil || !errors.Is(err, mem.ErrNoMemory) {
			return m.count(b, err)
		}
		if m.makeRoom(m.missing(size, err)) == 0 {
			break
		}
	}
	return m.count(m.limit.AllocWith(s, size, o))
}

// missing returns the bytes to evict for a request that failed with err.
func (m *memory) missing(size int64, err error) int64 {
	var refused *mem.LimitError
	if errors.As(err, &refused) && refused.Limit == m.limit.Limit() {
		return max(refused.Live+max(refused.Block, refused.Want)-refused.Limit, 1)
	}
	return size
}

func (m *memory) count(b mem.Block, err error) (mem.Block, error) {
	if err == nil {
		m.raise()
	}
	return b, err
}

// used returns the bytes in use.
func (m *memory) used() int64 { return m.limit.Live() + m.foreign.Load() }

func (m *memory) raise() {
	used := m.used()
	raise(&m.peak, used)
	raise(&m.high, used)
}

// restart starts the measurement of high again, and returns the bytes in use.
func (m *memory) restart() int64 {
	used := m.used()
	m.high.Store(used)
	return used
}

// addForeign counts bytes of memory elsewhere. It reports false if there is no room.
func (m *memory) addForeign(size int64) bool {
	limit := m.limit.Limit() - size
	if over := m.limit.Live() - limit; over > 0 {
		m.makeRoom(over)
	}
	if limit < m.limit.Live() {
		return false
	}
	m.limit.SetLimit(limit)
	m.foreign.Add(size)
	m.raise()
	return true
}

func (m *memory) removeForeign(size int64) {
	m.limit.SetLimit(m.limit.Limit() + size)
	m.foreign.Add(-size)
}

// raise makes x at least n.
func raise(x *atomic.Int64, n int64) {
	for old := x.Load(); old < n && !x.CompareAndSwap(old, n); old = x.Load() {
	}
}
