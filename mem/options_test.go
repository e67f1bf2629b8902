package mem_test

import (
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

func TestOptionsJoin(t *testing.T) {
	one := func() uint64 { return 1 }
	two := func() uint64 { return 2 }
	all := mem.AllocOptions{NoRetry: true, Logged: true, Tentative: true, RoundUp: 8, FreedBefore: one, Key: "a"}
	other := mem.AllocOptions{RoundUp: 16, FreedBefore: two, Key: "b"}
	for name, c := range map[string]struct{ a, b, want mem.AllocOptions }{
		"none":               {},
		"of the first":       {a: all, want: all},
		"of the second":      {b: all, want: all},
		"the first's win":    {a: all, b: other, want: all},
		"some of each":       {a: other, b: mem.AllocOptions{NoRetry: true}, want: mem.AllocOptions{NoRetry: true, RoundUp: 16, FreedBefore: two, Key: "b"}},
		"another of each":    {a: mem.AllocOptions{Logged: true}, b: mem.AllocOptions{Tentative: true}, want: mem.AllocOptions{Logged: true, Tentative: true}},
		"flags of one alone": {a: mem.AllocOptions{NoRetry: true}, b: mem.AllocOptions{Logged: true}, want: mem.AllocOptions{NoRetry: true, Logged: true}},
	} {
		got := c.a.Join(c.b)
		if (got.FreedBefore == nil) != (c.want.FreedBefore == nil) ||
			got.FreedBefore != nil && got.FreedBefore() != c.want.FreedBefore() {
			t.Errorf("%s: another FreedBefore", name)
		}
		if got.NoRetry != c.want.NoRetry || got.Logged != c.want.Logged || got.Tentative != c.want.Tentative ||
			got.RoundUp != c.want.RoundUp || got.Key != c.want.Key {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestOptionsRounded(t *testing.T) {
	for _, c := range []struct{ unit, size, want int64 }{
		{0, 100, 100},
		{1, 100, 100},
		{64, 1, 64},
		{64, 64, 64},
		{64, 65, 128},
		{64, 0, 0},
		{64, -5, -5},
		{1000, 1001, 2000},
		{64, math.MaxInt64 - 64, math.MaxInt64 - 63},
		{64, math.MaxInt64 - 63, math.MaxInt64 - 63},
		{64, math.MaxInt64, math.MaxInt64},
	} {
		size, o := mem.AllocOptions{RoundUp: c.unit, NoRetry: true}.Rounded(c.size)
		if size != c.want || o.RoundUp != 0 || !o.NoRetry {
			t.Errorf("%d bytes in units of %d are %d with %+v, want %d", c.size, c.unit, size, o, c.want)
		}
	}
	testkit.WantPanic(t, "a negative unit", "mem: AllocOptions.RoundUp", func() { mem.AllocOptions{RoundUp: -1}.Rounded(1) })
}

// A plainAllocator notes the sizes that it is asked for, and an optionsAllocator the options, too.
type plainAllocator struct{ sizes []int64 }

func (p *plainAllocator) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	p.sizes = append(p.sizes, size)
	return mem.Block{Size: size}, nil
}

func (p *plainAllocator) Free(mem.Block, ...driver.Stream) {}

type optionsAllocator struct {
	plainAllocator
	with []mem.AllocOptions
}

func (o *optionsAllocator) AllocWith(s driver.Stream, size int64, with mem.AllocOptions) (mem.Block, error) {
	o.with = append(o.with, with)
	return o.Alloc(s, size)
}

func TestAllocWithPassesOptions(t *testing.T) {
	for name, o := range map[string]mem.AllocOptions{
		"NoRetry": {NoRetry: true}, "Logged": {Logged: true}, "Tentative": {Tentative: true}, "Key": {Key: 1},
		"FreedBefore": {FreedBefore: func() uint64 { return 0 }},
	} {
		plain, with := &plainAllocator{}, &optionsAllocator{}
		o.RoundUp = 64
		for _, a := range []mem.Allocator{plain, with} {
			if b, err := mem.AllocWith(a, nil, 100, o); err != nil || b.Size != 128 {
				t.Errorf("%s: %T gave %+v, %v", name, a, b, err)
			}
		}
		if len(with.with) != 1 || with.with[0].RoundUp != 0 || with.with[0].NoRetry != o.NoRetry ||
			with.with[0].Logged != o.Logged || with.with[0].Tentative != o.Tentative || with.with[0].Key != o.Key ||
			(with.with[0].FreedBefore == nil) != (o.FreedBefore == nil) {
			t.Errorf("%s: the allocator got %+v", name, with.with)
		}
	}
	with := &optionsAllocator{}
	if b, err := mem.AllocWith(with, nil, 100, mem.AllocOptions{RoundUp: 64}); err != nil || b.Size != 128 || len(with.with) != 0 {
		t.Errorf("without options AllocWith is called: %+v, %v, %+v", b, err, with.with)
	}
}
