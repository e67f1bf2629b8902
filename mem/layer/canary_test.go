package layer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	_ "github.com/ashlar-go/ashlar/mem/arena"
	_ "github.com/ashlar-go/ashlar/mem/bfc"
	_ "github.com/ashlar-go/ashlar/mem/caching"
	_ "github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
	_ "github.com/ashlar-go/ashlar/mem/paged"
)

// canaryTotal is the memory of a device that tenants share. Tenants own all of it in turn.
const canaryTotal = 16 << 20

// sharedBases are allocators that tenants share, by a specification of mem.Open. With "magazine:" before it, caches of
// processors are between the allocator and the tenants.
var sharedBases = []string{
	"caching", "caching:expandable_segments:True", "bfc:limit=12MiB", "bfc:limit=12MiB,virtual=on", "arena:size=12MiB",
	"paged", "paged:keep=0", "paged:aliases=off", "direct", "magazine:caching", "magazine:paged",
}

func openShared(t testing.TB, dev driver.Device, spec string) mem.Allocator {
	t.Helper()
	rest, magazines := strings.CutPrefix(spec, "magazine:")
	a, err := mem.Open(rest, dev)
	testkit.Must(t, err)
	if magazines {
		return magazine.New(a, magazine.Options{})
	}
	return a
}

// canaries are tenants of one device. Each fills its blocks with a byte of its own, and looks at the contents of blocks
// that it gets: there must be no byte but zeros and its own.
type canaries struct {
	testing.TB
	rng     *rand.Rand
	dev     *fault.Device
	base    mem.Allocator
	quotas  *layer.Quotas
	tenants []*layer.Tenant
	tops    []mem.Allocator // what each tenant uses: itself, or caches above it
	streams []driver.Stream
	live    []*canaryBlock
	own     int64  // bytes that a tenant got back
	read    []byte // of contents
	rule    fault.Rule
	fired   bool
}

// A canaryBlock is a live block, and its holder.
type canaryBlock struct {
	mem.Block
	tenant int
	s      driver.Stream
	fixed  bool          // it refuses moves
	mover  driver.Stream // that s is still to wait for
}

func (b *canaryBlock) BeginMove() ([]driver.Stream, bool) { return nil, !b.fixed }

func (b *canaryBlock) EndMove(to mem.Block, s driver.Stream) { b.Block, b.mover = to, s }

func canaryOf(tenant int) byte { return byte(0xA1 + tenant) }

func newCanaries(t testing.TB, dev driver.Device, spec string, seed uint64) *canaries {
	t.Helper()
	c := &canaries{TB: t, rng: rand.New(rand.NewPCG(seed, 21)), dev: fault.Wrap(dev)}
	td := layer.NewTenantDevice(c.dev)
	c.base = openShared(t, td, spec)
	c.quotas = layer.NewIsolatedQuotas(c.base, td, 1<<40)
	for i := range 3 {
		tenant, err := c.quotas.Tenant(fmt.Sprint("tenant ", i), 0, 1<<40)
		testkit.Must(t, err)
		c.tenants = append(c.tenants, tenant)
		var top mem.Allocator = tenant
		if _, moves := mem.Find[mem.Compactor](c.base); i == 2 && !moves {
			top = magazine.New(tenant, magazine.Options{}) // a cache above a tenant keeps its memory
		}
		c.tops = append(c.tops, top)
	}
	c.streams = []driver.Stream{c.dev.DefaultStream()}
	for range 2 {
		s, err := c.dev.NewStream(driver.StreamOptions{})
		testkit.Must(t, err)
		c.streams = append(c.streams, s)
	}
	return c
}

// call makes a call of the allocator, in which driver calls may fail by the rule.
func (c *canaries) call(f func()) {
	if c.rule.Nth > 0 {
		c.dev.SetRules(c.rule)
	}
	f()
	if c.rule.Nth > 0 {
		c.rule.Nth -= c.dev.Calls()
		c.fired = c.fired || c.dev.Failed() > 0
		c.dev.SetRules()
	}
	for _, k := range c.live {
		if k.mover != nil && k.mover != k.s {
			m, err := k.mover.Mark()
			testkit.Must(c, err)
			testkit.Must(c, k.s.WaitFor(k.mover, m))
		}
		k.mover = nil
	}
}

// alloc allocates a block, looks at its contents, and fills it.
func (c *canaries) alloc(tenant int, s driver.Stream, size int64) error {
	c.Helper()
	k := &canaryBlock{tenant: tenant, s: s, fixed: c.rng.IntN(3) == 0}
	var err error
	c.call(func() { k.Block, err = c.tops[tenant].Alloc(s, size) })
	if err != nil {
		return err
	}
	got := c.contents(s, k.Block)
	own := bytes.Count(got, []byte{canaryOf(tenant)})
	if c.own += int64(own); own+bytes.Count(got, []byte{0}) != len(got) {
		i := slices.IndexFunc(got, func(x byte) bool { return x != 0 && x != canaryOf(tenant) })
		c.Fatalf("byte %d of %d of a block of tenant %d is %#x", i, k.Size, tenant, got[i])
	}
	testkit.Must(c, s.Fill(k.Ptr, canaryOf(tenant), k.Size))
	mem.Movable(c.tops[tenant], k.Block, k)
	c.live = append(c.live, k)
	return nil
}

// contents returns the bytes of a block, until the next call.
func (c *canaries) contents(s driver.Stream, b mem.Block) []byte {
	c.Helper()
	c.read = slices.Grow(c.read[:0], int(b.Size))[:b.Size]
	testkit.Must(c, s.CopyOut(c.read, b.Ptr))
	return c.read
}

// free frees the nth live block, which must still be full of its tenant's bytes. Another stream may still write there.
func (c *canaries) free(n int) {
	c.Helper()
	k := c.live[n]
	c.live = append(c.live[:n], c.live[n+1:]...)
	k.fixed = true
	if got := c.contents(k.s, k.Block); bytes.Count(got, []byte{canaryOf(k.tenant)}) != len(got) {
		c.Fatalf("a live block of tenant %d has changed", k.tenant)
	}
	var used []driver.Stream
	if u := c.streams[c.rng.IntN(len(c.streams))]; u != k.s {
		m, err := k.s.Mark()
		testkit.Must(c, err)
		testkit.Must(c, u.WaitFor(k.s, m))
		testkit.Must(c, u.Fill(k.Ptr, canaryOf(k.tenant), k.Size))
		used = []driver.Stream{u}
	}
	c.call(func() { c.tops[k.tenant].Free(k.Block, used...) })
}

func (c *canaries) freeAll() {
	for len(c.live) > 0 {
		c.free(c.rng.IntN(len(c.live)))
	}
}

// tolerate ends the test unless a request failed for lack of memory, or a call of the device was made to fail.
func (c *canaries) tolerate(err error) {
	c.Helper()
	if err != nil && !errors.Is(err, mem.ErrNoMemory) && !c.fired {
		c.Fatal(err)
	}
}

func (c *canaries) size() int64 { return 1 + c.rng.Int64N(1<<(4+c.rng.IntN(17))) }

// history runs random operations.
func (c *canaries) history(ops int) {
	c.Helper()
	for range ops {
		switch p := c.rng.IntN(20); {
		case p < 10:
			c.tolerate(c.alloc(c.rng.IntN(len(c.tenants)), c.streams[c.rng.IntN(len(c.streams))], c.size()))
		case p < 18 && len(c.live) > 0:
			c.free(c.rng.IntN(len(c.live)))
		case p == 18:
			if t, ok := mem.Find[mem.Trimmer](c.base); ok {
				var err error
				c.call(func() { err = t.EmptyCache() })
				c.tolerate(err)
			}
		case p == 19:
			if m, ok := mem.Find[mem.Compactor](c.base); ok {
				var err error
				c.call(func() { err = m.Compact(c.streams[c.rng.IntN(len(c.streams))]) })
				c.tolerate(err)
			}
		}
	}
}

// ownAll lets a tenant allocate all memory that there is, down to blocks of 512 bytes.
func (c *canaries) ownAll(tenant int) (total int64) {
	c.Helper()
	s := c.streams[tenant%len(c.streams)]
	for size := int64(4 << 20); size >= 512; size /= 2 {
		for {
			if err := c.alloc(tenant, s, size); err != nil {
				c.tolerate(err)
				break
			}
			total += c.live[len(c.live)-1].Size
		}
	}
	return total
}

func (c *canaries) close() {
	c.freeAll()
	for _, top := range c.tops {
		if m, ok := top.(*magazine.Cache); ok {
			testkit.Must(c, m.Close())
		}
	}
	for _, tenant := range c.tenants {
		testkit.Must(c, tenant.Leave())
	}
	if closer, ok := mem.Find[io.Closer](c.base); ok {
		testkit.Must(c, closer.Close())
	}
	if s, ok := mem.Find[interface{ Reports() []error }](c.base); ok {
		for _, err := range s.Reports() {
			c.Error(err)
		}
	}
	testkit.Must(c, c.dev.Close())
}

// runCanaries runs random histories on devices, then lets the tenants own all memory in turn.
func runCanaries(t *testing.T, open func(testing.TB) driver.Device, seeds, ops int) {
	for _, spec := range sharedBases {
		t.Run(spec, func(t *testing.T) {
			var wiped, own int64
			for seed := range uint64(seeds) {
				c := newCanaries(t, open(t), spec, seed)
				c.history(ops)
				c.freeAll()
				for tenant := range c.tenants {
					if n := c.ownAll(tenant); n < canaryTotal/2 {
						t.Errorf("tenant %d could own %d bytes", tenant, n)
					}
					c.freeAll()
				}
				own += c.own
				for _, tenant := range c.tenants {
					wiped += tenant.Stats().Wiped
				}
				c.close()
			}
			if wiped == 0 || own == 0 && spec != "direct" {
				t.Errorf("%d bytes were wiped, and %d came back to their tenants", wiped, own)
			}
		})
	}
}

func openCanarySim(t testing.TB) driver.Device { return drivertest.OpenSim(t, canaryTotal) }

// No byte of a tenant reaches another, whatever allocator they share, and bytes that come back to their tenant are
// there again.
func TestTenantsReadNoBytesOfOthersOnSim(t *testing.T) {
	runCanaries(t, openCanarySim, 2, 200)
}

func TestTenantsReadNoBytesOfOthersOnHost(t *testing.T) {
	runCanaries(t, func(t testing.TB) driver.Device {
		return drivertest.OpenDevice(t, fmt.Sprintf("host:total=%d,granularity=2MiB", canaryTotal))
	}, 1, 100)
}

// Nor does it when any driver call of the allocators or the tenants fails, alone or with all later ones.
func TestTenantsReadNoBytesOfOthersAfterFaults(t *testing.T) {
	for _, spec := range sharedBases {
		t.Run(spec, func(t *testing.T) {
			for _, onwards := range []bool{false, true} {
				for nth := int64(1); ; nth++ {
					c := newCanaries(t, openCanarySim(t), spec, 1)
					c.rule = fault.Rule{Nth: nth, Onwards: onwards}
					c.history(24)
					fired := c.fired
					c.rule, c.fired = fault.Rule{}, false
					c.freeAll()
					for range 10 {
						c.tolerate(c.alloc(c.rng.IntN(3), c.streams[0], c.size()))
					}
					c.freeAll()
					testkit.Must(t, c.dev.Close())
					if !fired {
						break
					}
				}
			}
		})
	}
}
