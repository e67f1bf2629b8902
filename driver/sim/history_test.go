package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// A history is one random run, on the device and on the oracle.
type history struct {
	t     *testing.T
	name  string
	rng   *rand.Rand
	d     *Device
	o     oracle
	block driver.Pointer // 32 bytes
	pages driver.Pointer // page a, page b, page a again
	a     driver.Page
	alias bool // the third page is mapped
	s     []driver.Stream
	marks []oracleMark
	races int
	much  int // percent of calls that are marks and waits
}

type oracleMark struct {
	s    driver.Stream
	m    driver.Mark
	node int
}

const granule = 4096

func TestDetectorAgreesWithOracle(t *testing.T) {
	const seeds = 4000
	races, calls := 0, uint64(0)
	for seed := range uint64(seeds) {
		opts := Options{
			Total: 1 << 20, Granularity: granule, Seed: seed, Completion: Completion(seed % 3), ReportOnly: seed%2 == 1,
		}
		h := &history{
			t: t, name: fmt.Sprintf("seed %d", seed), rng: rand.New(rand.NewPCG(seed, 70)), d: New(opts), o: oracle{host: -1},
		}
		h.run()
		races += h.races
		calls += h.d.seq
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories, %d calls, %d accesses with a race", seeds, calls, races)
	if races < seeds {
		t.Errorf("only %d races: the histories are too tame to mean anything", races)
	}
}

func (h *history) must(err error) {
	if err != nil {
		h.t.Fatalf("%s: %v", h.name, err)
	}
}

func (h *history) run() {
	var err error
	h.block, err = h.d.Alloc(32)
	h.must(err)
	vm := h.d.VirtualMemory()
	h.pages, err = vm.Reserve(3 * granule)
	h.must(err)
	h.a, err = vm.Create(granule)
	h.must(err)
	b, err := vm.Create(granule)
	h.must(err)
	h.must(vm.Map(h.pages, h.a, b, h.a))
	h.alias = true
	h.s = []driver.Stream{h.d.DefaultStream()}
	for range h.rng.IntN(5) {
		h.newStream()
	}
	h.much = 20 + h.rng.IntN(50)
	for range 10 + h.rng.IntN(60) {
		h.op()
	}
}

func (h *history) newStream() {
	s, err := h.d.NewStream(driver.StreamOptions{})
	h.must(err)
	h.s = append(h.s, s)
}

func (h *history) op() {
	i := h.rng.IntN(len(h.s))
	s := h.s[i]
	k := h.rng.IntN(100)
	if h.rng.IntN(100) < h.much {
		k = 50 + h.rng.IntN(35)
	}
	switch {
	case k < 50:
		h.access(s)
	case k < 65:
		m, err := s.Mark()
		h.must(err)
		h.marks = append(h.marks, oracleMark{s, m, h.o.onStream(s.ID())})
	case k < 85:
		if len(h.marks) > 0 {
			m := h.marks[max(0, len(h.marks)-1-h.rng.IntN(6))]
			h.must(s.WaitFor(m.s, m.m))
			h.o.onStream(s.ID(), m.node)
		}
	case k < 90:
		if len(h.marks) > 0 {
			m := h.marks[h.rng.IntN(len(h.marks))]
			ok, err := m.s.Reached(m.m)
			h.must(err)
			if ok {
				h.o.learn(m.node)
			}
		}
	case k < 92:
		h.must(s.Sync(context.Background()))
		h.o.learn(h.o.onStream(s.ID()))
	case k < 93 && i > 0:
		h.must(s.Close())
		h.o.learn(h.o.onStream(s.ID()))
		h.s = append(h.s[:i], h.s[i+1:]...)
		h.newStream()
	case k < 94:
		p, err := h.d.Alloc(1)
		h.must(err)
		h.must(h.d.Free(p))
		for id, last := range h.o.last {
			if last >= 0 {
				h.o.learn(h.o.onStream(driver.StreamID(id)))
			}
		}
	case k < 97:
		h.toggleAlias()
	default:
		h.d.Advance(s.ID(), h.rng.IntN(4))
	}
}

// place returns a random range and the physical bytes in it: 0 to 31 of the block, 10000 on of page a, 20000 on of b.
func (h *history) place() (r driver.Range, bytes map[int]bool, alias bool) {
	bytes = map[int]bool{}
	n := 1 + h.rng.IntN(8)
	if h.rng.IntN(2) == 0 {
		off := h.rng.IntN(32 - n)
		for i := range n {
			bytes[off+i] = true
		}
		return driver.Range{Ptr: h.block + driver.Pointer(off), Size: int64(n)}, bytes, false
	}
	last := 3
	if !h.alias {
		last = 2
	}
	// Near a border between pages, or at the start of one.
	off := h.rng.IntN(last) * granule
	if off > 0 {
		off -= h.rng.IntN(n + 3)
	}
	for i := range n {
		at := off + i
		page := at / granule
		alias = alias || page == 2
		bytes[10000*(1+page%2)+at%granule] = true
	}
	return driver.Range{Ptr: h.pages + driver.Pointer(off), Size: int64(n)}, bytes, alias
}

// access launches a kernel of one to three accesses, or makes one by Fill or CopyOut, and compares the verdicts.
func (h *history) access(s driver.Stream) {
	type wanted struct {
		madeAccess
		races []madeAccess
	}
	var k driver.Kernel
	var all []wanted
	from := []int{h.o.host}
	if int(s.ID()) < len(h.o.last) {
		from = append(from, h.o.last[s.ID()])
	}
	kind := h.rng.IntN(4) // 0: Fill, 1: CopyOut, else Launch
	count := 1
	if kind >= 2 {
		count += h.rng.IntN(3)
	}
	for range count {
		r, bytes, alias := h.place()
		write := kind == 0 || kind >= 2 && h.rng.IntN(2) == 0
		if write {
			k.Writes = append(k.Writes, r)
		} else {
			k.Reads = append(k.Reads, r)
		}
		a := madeAccess{write: write, r: r, bytes: bytes, alias: alias}
		all = append(all, wanted{a, h.o.conflicts(write, bytes, from...)})
	}
	reported := len(h.d.reports)
	var err error
	switch kind {
	case 0:
		err = s.Fill(all[0].r.Ptr, 1, all[0].r.Size)
	case 1:
		err = s.CopyOut(make([]byte, all[0].r.Size), all[0].r.Ptr)
	default:
		err = h.d.Kernels().Launch(s, k)
	}
	var reports []*RaceError
	for _, r := range h.d.reports[reported:] {
		reports = append(reports, r.(*RaceError))
	}

	bad := false
	for _, w := range all {
		got := false
		for _, r := range reports {
			got = got || r.Second.Range == w.r && r.Second.Write == w.write
		}
		if got != (len(w.races) > 0) {
			h.t.Fatalf("%s, call %d on stream %d, write %v of %+v: reported %v, the oracle finds %d races with %+v",
				h.name, h.d.seq, s.ID(), w.write, w.r, got, len(w.races), w.races)
		}
		if got {
			bad = true
			h.races++
		}
	}
	for _, r := range reports { // each names an access that is really at fault
		found := false
		for _, w := range all {
			for _, a := range w.races {
				found = found || a.seq == r.First.Seq && a.r == r.First.Range && a.write == r.First.Write
			}
		}
		if !found {
			h.t.Fatalf("%s: %v: the first access is not at fault", h.name, r)
		}
	}
	if race := (*RaceError)(nil); bad && !h.d.opts.ReportOnly {
		if !errors.As(err, &race) {
			h.t.Fatalf("%s: a race, and the call returned %v", h.name, err)
		}
		return
	}
	h.must(err)
	node := h.o.onStream(s.ID())
	for _, w := range all {
		w.node, w.seq = node, h.d.seq
		h.o.accesses = append(h.o.accesses, w.madeAccess)
	}
	if kind == 1 {
		h.o.learn(node)
	}
}

// toggleAlias maps or unmaps the third page. It may do so only if the host knows that all accesses through it are done.
func (h *history) toggleAlias() {
	vm, at := h.d.VirtualMemory(), h.pages+2*granule
	if !h.alias {
		h.must(vm.Map(at, h.a))
		h.alias = true
		return
	}
	pending := false
	for _, a := range h.o.accesses {
		pending = pending || a.alias && !h.o.reaches(a.node, h.o.host)
	}
	reported := len(h.d.reports)
	err := vm.Unmap(at, granule)
	if got := len(h.d.reports) > reported; got != pending {
		h.t.Fatalf("%s, call %d: Unmap reported %v, the oracle says %v", h.name, h.d.seq, got, pending)
	}
	if race := (*RaceError)(nil); pending && !h.d.opts.ReportOnly {
		if !errors.As(err, &race) || !race.Second.Host {
			h.t.Fatalf("%s: Unmap of memory in use returned %v", h.name, err)
		}
		return
	}
	h.must(err)
	h.alias = false
	for i := range h.o.accesses {
		h.o.accesses[i].alias = false
	}
}
