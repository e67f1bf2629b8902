package fit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A naive is the model: a flag for each integer, and the value that was given with it.
type naive struct {
	unit int64
	free []bool
	mark []uint64 // the hole's value, the same for all of it
}

func newNaive(n int, unit int64) *naive { return &naive{unit, make([]bool, n), make([]uint64, n)} }

func (m *naive) fits(at, size int64) bool {
	return at >= 0 && at+size <= int64(len(m.free)) && !slices.Contains(m.free[at:at+size], false)
}

func (m *naive) give(at, size int64, v uint64) {
	for i := at; i < at+size; i++ {
		m.free[i] = true
	}
	low, high := at, at+size
	for low > 0 && m.free[low-1] {
		low--
	}
	for high < int64(len(m.free)) && m.free[high] {
		high++
	}
	if low < at {
		v |= m.mark[low]
	}
	if high > at+size {
		v |= m.mark[high-1]
	}
	for i := low; i < high; i++ {
		m.mark[i] = v
	}
}

func (m *naive) takeAt(at, size int64) (uint64, bool) {
	if !m.fits(at, size) {
		return 0, false
	}
	for i := at; i < at+size; i++ {
		m.free[i] = false
	}
	return m.mark[at], true
}

func (m *naive) take(size int64) (int64, uint64, bool) {
	for at := int64(0); at < int64(len(m.free)); at += m.unit {
		if v, ok := m.takeAt(at, size); ok {
			return at, v, true
		}
	}
	return 0, 0, false
}

func (m *naive) takeLast(size int64) (int64, uint64, bool) {
	for at := (int64(len(m.free)) - size) / m.unit * m.unit; at >= 0; at -= m.unit {
		if v, ok := m.takeAt(at, size); ok {
			return at, v, true
		}
	}
	return 0, 0, false
}

func (m *naive) holes() (spans []Span, values []uint64, free, largest int64) {
	for at := int64(0); at < int64(len(m.free)); at++ {
		if !m.free[at] {
			continue
		}
		s := Span{at, 0}
		for at < int64(len(m.free)) && m.free[at] {
			s.Size++
			at++
		}
		spans, values, free = append(spans, s), append(values, m.mark[s.At]), free+s.Size
		largest = max(largest, s.End()-ceil(s.At, m.unit))
	}
	return spans, values, free, largest
}

func or(a, b uint64) uint64 { return a | b }

// agree compares every answer of a FirstFit with the model.
func agree(f *FirstFit[uint64], m *naive) error {
	spans, values, free, largest := m.holes()
	i := 0
	for s, v := range f.All() {
		if i == len(spans) || s != spans[i] || v != values[i] {
			return fmt.Errorf("hole %d is %v with %#x; want the holes %v with %x", i, s, v, spans, values)
		}
		i++
	}
	if i != len(spans) || f.Len() != len(spans) || f.Free() != free || f.Largest() != largest {
		return fmt.Errorf("%d holes seen, Len %d, Free %d, Largest %d; want %d, %d, %d of %v",
			i, f.Len(), f.Free(), f.Largest(), len(spans), free, largest, spans)
	}
	return f.root.check(true)
}

// check checks the tree's invariants.
func (t *node[V]) check(root bool) error {
	if t.n == 0 && !root {
		return fmt.Errorf("an empty node")
	}
	for i := range t.n {
		if i > 0 && t.start[i] <= t.start[i-1] {
			return fmt.Errorf("starts %v are not in order", t.start[:t.n])
		}
		if t.inner == nil {
			continue
		}
		c := t.inner[i]
		if err := c.check(false); err != nil {
			return err
		}
		if t.start[i] != c.start[0] || t.room[i] != slices.Max(c.room[:c.n]) {
			return fmt.Errorf("entry (%d, %d) of a node whose entries are %v, %v", t.start[i], t.room[i], c.start[:c.n], c.room[:c.n])
		}
	}
	return nil
}

// TestEveryLayout takes every size in every way from every set of free integers of ten, and gives every span back.
func TestEveryLayout(t *testing.T) {
	const n = 10
	for _, unit := range []int64{1, 2, 3} {
		for set := range 1 << n {
			layout := func() (*FirstFit[uint64], *naive) {
				f, m := NewFirstFit(unit, or), newNaive(n, unit)
				for i := range int64(n) {
					if set>>i&1 == 1 {
						f.Give(i, 1, 1<<i)
						m.give(i, 1, 1<<i)
					}
				}
				return f, m
			}
			verify := func(f *FirstFit[uint64], m *naive, what string, args ...any) {
				if err := agree(f, m); err != nil {
					t.Fatalf("unit %d, free %0*b, %s: %v", unit, n, set, fmt.Sprintf(what, args...), err)
				}
			}
			f, m := layout()
			verify(f, m, "at first")
			for size := int64(1); size <= n; size++ {
				f, m := layout()
				at, v, ok := f.Take(size)
				wantAt, want, wantOK := m.take(size)
				if at != wantAt || v != want || ok != wantOK {
					t.Fatalf("unit %d, free %0*b: Take(%d) = %d, %#x, %t; want %d, %#x, %t", unit, n, set, size, at, v, ok, wantAt, want, wantOK)
				}
				verify(f, m, "after Take(%d)", size)
				f, m = layout()
				at, v, ok = f.TakeLast(size)
				wantAt, want, wantOK = m.takeLast(size)
				if at != wantAt || v != want || ok != wantOK {
					t.Fatalf("unit %d, free %0*b: TakeLast(%d) = %d, %#x, %t; want %d, %#x, %t", unit, n, set, size, at, v, ok, wantAt, want, wantOK)
				}
				verify(f, m, "after TakeLast(%d)", size)
				for at := range n - size + 1 {
					f, m = layout()
					v, ok := f.TakeAt(at, size)
					if want, wantOK := m.takeAt(at, size); ok != wantOK || v != want {
						t.Fatalf("unit %d, free %0*b: TakeAt(%d, %d) = %#x, %t; want %#x, %t", unit, n, set, at, size, v, ok, want, wantOK)
					}
					verify(f, m, "after TakeAt(%d, %d)", at, size)
					f, m = layout()
					if slices.Contains(m.free[at:at+size], true) {
						if testkit.PanicText(func() { f.Give(at, size, 0) }) == "" {
							t.Fatalf("free %0*b: Give(%d, %d) did not panic", n, set, at, size)
						}
					} else {
						f.Give(at, size, 1<<n)
						m.give(at, size, 1<<n)
					}
					verify(f, m, "after Give(%d, %d)", at, size)
				}
			}
		}
	}
}

// TestRandom is a long life of thousands of holes: the tree grows to three levels and shrinks to nothing.
func TestRandom(t *testing.T) {
	for _, seed := range []uint64{1, 2, testkit.FreshSeed()} {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		const n = 12_000
		unit := []int64{1, 1, 4}[seed%3]
		f, m := NewFirstFit(unit, or), newNaive(n, unit)
		var taken []Span
		take := func(at, size int64) { taken = append(taken, Span{at, size}) }
		f.Give(0, n, 0)
		m.give(0, n, 0)
		for step := range 24_000 {
			size := 1 + rng.Int64N(1+rng.Int64N(8))
			growing := step/6000%2 == 0
			switch op := rng.IntN(10); {
			case op < 2 || op < 6 && growing:
				at, v, ok := f.Take(size)
				if wantAt, want, wantOK := m.take(size); at != wantAt || ok != wantOK || v != want {
					t.Fatalf("seed %d step %d: Take(%d) = %d, %#x, %t; want %d, %#x, %t", seed, step, size, at, v, ok, wantAt, want, wantOK)
				}
				if ok {
					take(at, size)
				}
			case op == 6:
				at, v, ok := f.TakeLast(size)
				if wantAt, want, wantOK := m.takeLast(size); at != wantAt || ok != wantOK || v != want {
					t.Fatalf("seed %d step %d: TakeLast(%d) = %d, %#x, %t; want %d, %#x, %t", seed, step, size, at, v, ok, wantAt, want, wantOK)
				}
				if ok {
					take(at, size)
				}
			case op == 7:
				at := rng.Int64N(n - size)
				v, ok := f.TakeAt(at, size)
				if want, wantOK := m.takeAt(at, size); ok != wantOK || v != want {
					t.Fatalf("seed %d step %d: TakeAt(%d, %d) = %#x, %t; want %#x, %t", seed, step, at, size, v, ok, want, wantOK)
				}
				if ok {
					take(at, size)
				}
			case len(taken) > 0:
				i := rng.IntN(len(taken))
				s := taken[i]
				taken[i] = taken[len(taken)-1]
				taken = taken[:len(taken)-1]
				v := uint64(1) << rng.IntN(20)
				f.Give(s.At, s.Size, v)
				m.give(s.At, s.Size, v)
			}
			at := rng.Int64N(n)
			if s, _, ok := f.Find(at); ok != m.free[at] || ok && (s.At > at || s.End() <= at) {
				t.Fatalf("seed %d step %d: Find(%d) = %v, %t", seed, step, at, s, ok)
			}
			if step%400 == 0 {
				if err := agree(f, m); err != nil {
					t.Fatalf("seed %d step %d: %v", seed, step, err)
				}
			}
		}
		for _, s := range taken {
			f.Give(s.At, s.Size, 0)
		}
		if f.Len() != 1 || f.Free() != n || f.Largest() != n {
			t.Errorf("seed %d: all given back: %d holes, %d free, largest %d; want 1, %d, %d", seed, f.Len(), f.Free(), f.Largest(), n, n)
		}
	}
}

// TestManyHoles has a tree of four levels, built and emptied in several orders, and looks at every node.
func TestManyHoles(t *testing.T) {
	const n = 40_000
	for _, order := range []string{"up", "down", "mixed"} {
		f := NewFirstFit[uint64](1, or)
		at := func(i int) int64 {
			switch order {
			case "down":
				i = n - 1 - i
			case "mixed":
				i = i * 7919 % n
			}
			return int64(i) * 4
		}
		for i := range n {
			f.Give(at(i), 1+at(i)/4%3, 0)
		}
		if err := f.root.check(true); err != nil || f.Len() != n {
			t.Fatalf("%s: %d holes: %v", order, f.Len(), err)
		}
		for i := range n {
			if _, ok := f.TakeAt(at(i), 1+at(i)/4%3); !ok {
				t.Fatalf("%s: the hole at %d is gone", order, at(i))
			}
			if i%1000 == 0 {
				if err := f.root.check(true); err != nil {
					t.Fatalf("%s: %d taken: %v", order, i+1, err)
				}
			}
		}
		if f.Len() != 0 || f.Free() != 0 || f.Largest() != 0 || f.root.inner != nil {
			t.Errorf("%s: all taken: %d holes, %d free, largest %d", order, f.Len(), f.Free(), f.Largest())
		}
	}
}

// TestMisuse: bugs of the caller panic and change nothing.
func TestMisuse(t *testing.T) {
	f := NewFirstFit[struct{}](512, nil)
	f.Give(512, 1024, struct{}{})
	for name, call := range map[string]func(){
		"Give of nothing":       func() { f.Give(0, 0, struct{}{}) },
		"Give below zero":       func() { f.Give(-1, 1, struct{}{}) },
		"Give beyond the limit": func() { f.Give(limit, 1, struct{}{}) },
		"Give over a hole":      func() { f.Give(0, 1<<20, struct{}{}) },
		"Take of nothing":       func() { f.Take(0) },
		"TakeLast of -1":        func() { f.TakeLast(-1) },
		"TakeAt of nothing":     func() { f.TakeAt(512, 0) },
		"a unit of 0":           func() { NewFirstFit[int](0, nil) },
	} {
		testkit.WantPanic(t, name, "", call)
	}
	if f.Len() != 1 || f.Free() != 1024 {
		t.Errorf("after misuse: %d holes of %d bytes", f.Len(), f.Free())
	}
}
