package caching

import (
	"errors"
	"flag"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
)

var poolOps = flag.Int("pools", 5000, "pools that TestDeadPoolsLeaveNoRecords makes, uses and closes")

func newPlain(t *testing.T) (*Allocator, *sim.Device) {
	t.Helper()
	dev := sim.New(sim.Options{Total: 1 << 40, Unchecked: true})
	a, err := New(dev, Default())
	if err != nil {
		t.Fatal(err)
	}
	return a, dev
}

// Dead pools leave no records behind, so nothing that looks through the records takes longer for them.
func TestDeadPoolsLeaveNoRecords(t *testing.T) {
	a, dev := newPlain(t)
	s := dev.DefaultStream()
	for i := range *poolOps {
		p := a.NewPool(PoolOptions{UseOnOOM: i%2 == 0, NoSplit: i%3 == 0})
		end := p.Begin(nil)
		small, err := a.Alloc(s, 512)
		if err != nil {
			t.Fatal(err)
		}
		end()
		large, err := p.Alloc(s, 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		p.Free(small)
		if i%4 == 0 { // the pool is gone at once, or with the next EmptyCache
			p.Free(large)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if i%4 != 0 {
			a.Free(large)
		}
		if i%16 == 0 {
			if err := a.EmptyCache(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	sh := (*a.shards.Load())[s.ID()]
	if n := len(a.private); n != 0 {
		t.Errorf("%d pools are left", n)
	}
	if n := len(a.overflow) + len(a.scopes) + len(a.returns); n != 0 {
		t.Errorf("%d pools lend, are allocated to or have segments to give back", n)
	}
	if n := len(sh.pools); n > 2+2*16 || len(sh.vacant) != n-2 {
		t.Errorf("the shard has %d places for pools, %d of them vacant", n, len(sh.vacant))
	}
	if n := sh.slab.n; n > 100 {
		t.Errorf("the shard has %d records of blocks", n)
	}
	if err := a.Check(); err != nil {
		t.Error(err)
	}
}

func TestTooManyPools(t *testing.T) {
	a, dev := newPlain(t)
	s := dev.DefaultStream()
	b, err := a.Alloc(s, 512)
	if err != nil {
		t.Fatal(err)
	}
	sh := (*a.shards.Load())[s.ID()]
	sh.pools = append(sh.pools, make([]*shardPool, maxPools-len(sh.pools))...)
	p := a.NewPool(PoolOptions{})
	if _, err := p.Alloc(s, 512); !errors.Is(err, errTooManyPools) {
		t.Errorf("a request to one pool too many: %v", err)
	}
	sh.vacant = append(sh.vacant, 7)
	c, err := p.Alloc(s, 512)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(c)
	a.Free(b)
	if err := errors.Join(p.Close(), a.Close()); err != nil {
		t.Error(err)
	}
}
