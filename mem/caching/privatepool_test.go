package caching_test

import (
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// A lonePool presents a pool as an allocator of its own, for the conformance suite.
type lonePool struct {
	*caching.Pool
	of      *caching.Allocator
	closers []io.Closer // of upstreams, closed last
}

// EmptyCache empties all there is.
func (l *lonePool) EmptyCache() error {
	err := errors.Join(l.Pool.EmptyCache(), l.of.EmptyCache())
	for _, c := range l.closers {
		if trimmer, ok := c.(mem.Trimmer); ok {
			err = errors.Join(err, trimmer.EmptyCache())
		}
	}
	return err
}

func (l *lonePool) Close() error {
	if err := errors.Join(l.Pool.Close(), l.of.Close()); err != nil {
		return err
	}
	for _, c := range l.closers {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Each pool is an allocator that passes the suite, and so do its upstreams' failures: the suite fails every driver call
// in turn, those of mem/direct below included.
func TestConformanceOfPools(t *testing.T) {
	type maker = func(t testing.TB, a *caching.Allocator, dev driver.Device) (caching.PoolOptions, []io.Closer)
	plain := func(testing.TB, *caching.Allocator, driver.Device) (o caching.PoolOptions, c []io.Closer) {
		return o, c
	}
	overDirect := func(_ testing.TB, _ *caching.Allocator, dev driver.Device) (caching.PoolOptions, []io.Closer) {
		d := direct.New(dev, direct.Config{})
		return caching.PoolOptions{Upstream: d}, []io.Closer{d}
	}
	for name, c := range map[string]struct {
		settings string
		make     maker
	}{
		"plain":      {"", plain},
		"expandable": {"expandable_segments:True", plain},
		"direct":     {"expandable_segments:True,release_lock_on_cudamalloc:True", overDirect},
		"caching": {"", func(t testing.TB, _ *caching.Allocator, dev driver.Device) (caching.PoolOptions, []io.Closer) {
			below := newAllocator(t, dev, "")
			return caching.PoolOptions{Upstream: below}, []io.Closer{below}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			memtest.Run(t, memtest.Config{
				New: func(t testing.TB, dev driver.Device) mem.Allocator {
					a := newAllocator(t, dev, c.settings)
					o, closers := c.make(t, a, dev)
					return &lonePool{a.NewPool(o), a, closers}
				},
				Ops: 300, Seeds: 2, FaultOps: 25,
			})
		})
	}
}

// A manyPools sends requests to one of several pools of an allocator, or to the allocator, within scopes or without.
// Which, the numbers of the requests say, so that histories stay what they are.
type manyPools struct {
	*caching.Allocator
	up *direct.Allocator

	use   sync.RWMutex // held while a pool dies, and for reading by who has chosen one
	mu    sync.Mutex
	n     int
	pools []*caching.Pool
}

func newManyPools(t testing.TB, dev driver.Device, settings string) *manyPools {
	m := &manyPools{Allocator: newAllocator(t, dev, settings), up: direct.New(dev, direct.Config{})}
	for i := range 6 {
		m.pools = append(m.pools, m.newPool(i))
	}
	return m
}

func (m *manyPools) newPool(i int) *caching.Pool {
	o := caching.PoolOptions{UseOnOOM: i%3 == 0, NoSplit: i%10 == 1}
	if i%2 == 0 {
		o.Upstream = m.up
	}
	return m.NewPool(o)
}

func (m *manyPools) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, dying, err := m.allocFromOne(s, size)
	if dying != nil {
		m.use.Lock()
		defer m.use.Unlock()
		_ = dying.Close() // what it cannot give back now, the allocator's EmptyCache can
	}
	return b, err
}

// allocFromOne chooses a pool. It returns the pool that has served its last request, if any: the block outlives it.
func (m *manyPools) allocFromOne(s driver.Stream, size int64) (b mem.Block, dying *caching.Pool, err error) {
	m.use.RLock()
	defer m.use.RUnlock()
	m.mu.Lock()
	m.n++
	n := m.n
	i := n % (len(m.pools) + 1)
	p, nest := (*caching.Pool)(nil), m.pools[n%len(m.pools)]
	if i < len(m.pools) {
		if p = m.pools[i]; n%40 == i {
			dying, m.pools[i] = p, m.newPool(n)
		}
	}
	m.mu.Unlock()
	b, err = m.from(p, nest, n, s, size)
	if errors.Is(err, mem.ErrNoMemory) && size < gib {
		// The other pools may have the memory that this one lacks; a program that uses several must release it.
		_ = m.EmptyCache()
		b, err = m.from(p, nest, n, s, size)
	}
	return b, dying, err
}

// from asks a pool, or, if it is nil, the default pool, in one of several ways.
func (m *manyPools) from(p, nest *caching.Pool, n int, s driver.Stream, size int64) (b mem.Block, err error) {
	switch {
	case p == nil:
		return m.Allocator.Alloc(s, size)
	case n%3 == 0:
		p.Use(func(other driver.Stream) bool { return other == s }, func() { b, err = m.Allocator.Alloc(s, size) })
		return b, err
	case n%3 == 1:
		defer nest.Begin(nil)()
	}
	return p.Alloc(s, size)
}

func (m *manyPools) each(f func(p *caching.Pool) error) error {
	m.mu.Lock()
	pools := slices.Clone(m.pools)
	m.mu.Unlock()
	var failures []error
	for _, p := range pools {
		failures = append(failures, f(p))
	}
	return errors.Join(failures...)
}

func (m *manyPools) EmptyCache() error {
	return errors.Join(m.each((*caching.Pool).EmptyCache), m.Allocator.EmptyCache(), m.up.EmptyCache())
}

func (m *manyPools) Close() error {
	if err := errors.Join(m.each((*caching.Pool).Close), m.Allocator.Close()); err != nil {
		return err
	}
	return m.up.Close()
}

func TestHistoriesOfSeveralPools(t *testing.T) {
	for name, settings := range map[string]string{
		"native":     "release_lock_on_cudamalloc:True,max_split_size_mb:20",
		"expandable": "expandable_segments:True",
	} {
		t.Run(name, func(t *testing.T) {
			memtest.Run(t, memtest.Config{
				Sim: sim.Options{Total: 2 * gib},
				New: func(t testing.TB, dev driver.Device) mem.Allocator { return newManyPools(t, dev, settings) },
				Ops: 600, Seeds: 2, FaultOps: 20,
			})
		})
	}
}
