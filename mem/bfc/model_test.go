package bfc_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

var campaign = flag.Int("campaign", 0, "random histories from fresh seeds that the model is held against, besides the usual")

// A chunk is a block of the model.
type chunk struct {
	ptr  uint64
	size int64
	used bool
}

// A model is TensorFlow's policy, and RMM's initial segment, written down once more in the plainest way: lists that are
// searched from end to end. It knows no streams. The addresses of its regions are those that the device gave the
// allocator.
type model struct {
	limit, pool, next, waste, step int64
	kept                           int64 // at the front of the first region
	collects, whole                bool
	regions                        [][]chunk
	deviceFree                     int64
	news                           []mem.Event // what the allocator got and gave back in the call
	wrong                          error
}

func (m *model) fail(format string, args ...any) {
	if m.wrong == nil {
		m.wrong = fmt.Errorf(format, args...)
	}
}

func up(n, to int64) int64 { return (n + to - 1) / to * to }

func logBin(size int64) int {
	b := 0
	for size >= 512<<b && b < 20 {
		b++
	}
	return b
}

// find goes through the bins from that of the size, and through each by size and address.
func (m *model) find(size int64) (uint64, int64) {
	for bin := logBin(size); bin < 21; bin++ {
		type place struct{ region, i int }
		var all []place
		for r := range m.regions {
			for i, c := range m.regions[r] {
				if !c.used && logBin(c.size) == bin {
					all = append(all, place{r, i})
				}
			}
		}
		slices.SortFunc(all, func(x, y place) int {
			a, b := m.regions[x.region][x.i], m.regions[y.region][y.i]
			return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.ptr, b.ptr))
		})
		for _, p := range all {
			c := &m.regions[p.region][p.i]
			if c.size < size {
				continue
			}
			c.used = true
			if rest := c.size - size; rest > 0 && (c.size >= 2*size || rest >= m.waste) {
				c.size = size
				m.regions[p.region] = slices.Insert(m.regions[p.region], p.i+1, chunk{c.ptr + uint64(size), rest, false})
				c = &m.regions[p.region][p.i]
			}
			return c.ptr, c.size
		}
	}
	return 0, 0
}

func (m *model) tidy() {
	for r, list := range m.regions {
		for i := 1; i < len(list); {
			if !list[i-1].used && !list[i].used {
				list[i-1].size += list[i].size
				list = slices.Delete(list, i, i+1)
			} else {
				i++
			}
		}
		m.regions[r] = list
	}
}

func (m *model) extend(size int64) bool {
	room := (m.limit - m.pool) / m.step * m.step
	least := up(size, m.step)
	if least > room {
		return false
	}
	grown := false
	for size > m.next {
		m.next, grown = 2*m.next, true
	}
	n := min(up(m.next, m.step), room)
	for n > m.deviceFree {
		if n == least {
			return false
		}
		less := up(int64(float32(n)*float32(0.9)), m.step)
		n = max(least, min(less, n-m.step))
	}
	if !grown && m.next < m.limit {
		m.next *= 2
	}
	if len(m.news) == 0 || m.news[0].Size != n {
		m.fail("the allocator did %v; want a segment of %d", m.news, n)
		return false
	}
	c := chunk{uint64(m.news[0].Ptr), n, false}
	m.news = m.news[1:]
	m.pool += n
	m.deviceFree -= n
	if m.whole && len(m.regions) == 1 {
		m.regions[0] = append(m.regions[0], c)
		m.tidy()
	} else {
		m.regions = append(m.regions, []chunk{c})
	}
	return true
}

// empty gives back the unused regions, if they are of at least some size.
func (m *model) empty(least int64) bool {
	unused := func(list []chunk) bool { return !slices.ContainsFunc(list, func(c chunk) bool { return c.used }) }
	size := func(list []chunk) (n int64) {
		for _, c := range list {
			n += c.size
		}
		return n
	}
	kept := func(r int) int64 {
		if r == 0 {
			return m.kept
		}
		return 0
	}
	var all int64
	for r, list := range m.regions {
		if unused(list) {
			all += size(list) - kept(r)
		}
	}
	if all == 0 || all < least {
		return false
	}
	var left [][]chunk
	for r, list := range m.regions {
		n := size(list) - kept(r)
		if !unused(list) || n == 0 {
			left = append(left, list)
			continue
		}
		if kept(r) > 0 {
			left = append(left, []chunk{{list[0].ptr, kept(r), false}})
		}
		at := list[0].ptr + uint64(kept(r))
		i := slices.IndexFunc(m.news, func(e mem.Event) bool { return uint64(e.Ptr) == at && e.Size == n })
		if i < 0 {
			m.fail("the %d bytes at %#x were not given back: %v", n, at, m.news)
			continue
		}
		m.news = slices.Delete(m.news, i, i+1)
		m.pool -= n
		m.deviceFree += n
	}
	m.regions = left
	return true
}

func (m *model) alloc(size int64) (uint64, int64) {
	size = up(size, 256)
	if p, n := m.find(size); p != 0 {
		return p, n
	}
	if m.extend(size) {
		return m.find(size)
	}
	if room := (m.limit - m.pool) / m.step * m.step; m.collects && m.empty(size-room) && m.extend(size) {
		return m.find(size)
	}
	return 0, 0
}

func (m *model) free(ptr uint64) {
	for _, list := range m.regions {
		for i := range list {
			if list[i].ptr == ptr && list[i].used {
				list[i].used = false
				m.tidy()
				return
			}
		}
	}
	m.fail("no block at %#x", ptr)
}

// compare runs a random history on the allocator, over several streams, and on the model.
func compare(t *testing.T, seed uint64) {
	rng := mathrand.New(mathrand.NewPCG(seed, 73))
	dev := sim.New(sim.Options{Total: 64 << 20, Alignment: 256, Granularity: 64 << 10, Unchecked: true})
	defer dev.Close()
	cfg := bfc.Config{
		Limit:    1<<20 + rng.Int64N(127<<20),
		NoGrowth: rng.IntN(4) == 0, NoCollect: rng.IntN(3) == 0, Virtual: rng.IntN(3) == 0,
		Fragmentation: []float64{0, 0.01, 0.2}[rng.IntN(3)],
	}
	if rng.IntN(4) == 0 {
		cfg.Initial = min((1+rng.Int64N(1<<rng.IntN(10)))*64<<10, cfg.Limit/(64<<10)*(64<<10), 60<<20)
	}
	m := &model{limit: cfg.Limit, waste: 128 << 20, step: 256, collects: !cfg.NoCollect, whole: cfg.Virtual, next: 2 << 20}
	if cfg.NoGrowth || cfg.Limit < m.next {
		m.next = up(cfg.Limit, 256)
	}
	if cfg.Fragmentation > 0 {
		m.waste = int64(cfg.Fragmentation * float64(cfg.Limit))
	}
	if cfg.Virtual {
		m.step = 64 << 10
	}
	a := newAllocator(t, dev, cfg)
	if cfg.Initial > 0 {
		m.kept, m.pool = cfg.Initial, cfg.Initial
		m.regions = [][]chunk{{{uint64(a.Snapshot()[0].Ptr), cfg.Initial, false}}}
		if !cfg.NoGrowth {
			m.next = 2 * cfg.Initial
		}
	}
	streams := []driver.Stream{dev.DefaultStream()}
	for len(streams) < 3 {
		s := drivertest.NewStream(t, dev)
		streams = append(streams, s)
	}
	a.Observe(func(e mem.Event) {
		switch e.Action {
		case mem.ActionSegmentAlloc, mem.ActionSegmentFree, mem.ActionSegmentMap, mem.ActionSegmentUnmap:
			m.news = append(m.news, e)
		}
	})
	largest := 10 + rng.IntN(14)
	var live []mem.Block
	for op := range 250 {
		free, _, err := dev.Available()
		if err != nil {
			t.Fatal(err)
		}
		m.deviceFree = free
		what := ""
		switch k := rng.IntN(100); {
		case k < 55 || len(live) == 0:
			size := 1 + rng.Int64N(1<<(1+rng.IntN(largest)))
			b, err := a.Alloc(streams[rng.IntN(len(streams))], size)
			if err != nil && !errors.Is(err, mem.ErrNoMemory) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			ptr, got := m.alloc(size)
			what = fmt.Sprintf("Alloc of %d bytes gave %d at %#x (%v); TensorFlow gives %d at %#x", size, b.Size, uint64(b.Ptr), err, got, ptr)
			if uint64(b.Ptr) != ptr || b.Size != got {
				m.fail("another block")
			}
			if err == nil {
				live = append(live, b)
			}
		case k < 97:
			i := rng.IntN(len(live))
			a.Free(live[i], streams[rng.IntN(len(streams))])
			m.free(uint64(live[i].Ptr))
			live = slices.Delete(live, i, i+1)
		default:
			if err := a.EmptyCache(); err != nil {
				t.Fatal(err)
			}
			m.empty(0)
		}
		if m.wrong == nil && len(m.news) > 0 {
			m.fail("the allocator did %v with segments; TensorFlow does not", m.news)
		}
		if m.wrong != nil {
			t.Fatalf("seed %d, %+v, operation %d: %v; %s", seed, cfg, op, m.wrong, what)
		}
	}
	if err := a.Check(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

// TestAddressesAreThePlainModels: random histories get the addresses of the plain model, whatever the streams.
func TestAddressesAreThePlainModels(t *testing.T) {
	for seed := range uint64(60) {
		compare(t, seed)
	}
	for range *campaign {
		compare(t, testkit.FreshSeed())
	}
}
