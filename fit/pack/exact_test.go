package pack_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"testing"

	"github.com/ashlar-go/ashlar/fit/pack"
)

var (
	exactInstances = flag.Int("exact-instances", 300, "how many random instances to hold the exact search against brute force on")
	exactAll       = flag.Bool("exact-all", false, "pack the instances that take longest, too")
)

// TestExactAgreesWithBruteForce tries every capacity on instances small enough to try every packing.
func TestExactAgreesWithBruteForce(t *testing.T) {
	var fresh [8]byte
	if _, err := rand.Read(fresh[:]); err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{1, binary.LittleEndian.Uint64(fresh[:])} {
		t.Logf("seed %d", seed)
		rng := mathrand.New(mathrand.NewPCG(seed, 0))
		for range *exactInstances {
			buffers := make([]pack.Buffer, 1+rng.IntN(7))
			moments, sizes := 1+rng.Int64N(8), 1+rng.Int64N(6)
			sum := int64(0)
			for i := range buffers {
				lower := rng.Int64N(moments)
				buffers[i] = pack.Buffer{
					ID: fmt.Sprint(i), Lower: lower, Upper: lower + 1 + rng.Int64N(moments-lower), Size: 1 + rng.Int64N(sizes),
				}
				sum += buffers[i].Size
			}
			least := leastHeight(buffers, make([]int64, len(buffers)), 0, 0, math.MaxInt64)
			for capacity := int64(-1); capacity <= sum+1; capacity++ {
				offsets, ok, err := pack.Exact(t.Context(), buffers, capacity)
				if err != nil || ok != (capacity >= least) {
					t.Fatalf("seed %d: capacity %d, least height %d: got %v, %v for %+v", seed, capacity, least, ok, err, buffers)
				}
				if ok {
					checkExact(t, buffers, offsets, capacity)
				} else if offsets != nil {
					t.Fatalf("offsets %v without a packing", offsets)
				}
			}
		}
	}
}

// noneAtTheBound are instances whose least height exceeds their bound, so that only search can prove it: lower, upper,
// size.
var noneAtTheBound = [][][3]int64{
	{{6, 9, 4}, {7, 9, 4}, {2, 5, 1}, {2, 7, 1}, {4, 5, 3}, {2, 4, 1}, {3, 7, 2}, {1, 2, 4}, {1, 3, 4}},
	{{3, 4, 2}, {0, 5, 1}, {2, 5, 1}, {4, 8, 4}, {2, 3, 2}, {3, 8, 1}, {6, 8, 3}, {0, 4, 3}, {0, 1, 4}},
	{{2, 6, 1}, {3, 7, 2}, {5, 6, 3}, {1, 2, 4}, {0, 3, 2}, {6, 8, 4}, {3, 4, 3}, {2, 3, 2}, {1, 5, 2}, {4, 8, 2}},
}

func ofSpans(spans [][3]int64) []pack.Buffer {
	buffers := make([]pack.Buffer, len(spans))
	for i, s := range spans {
		buffers[i] = pack.Buffer{Lower: s[0], Upper: s[1], Size: s[2]}
	}
	return buffers
}

func TestExactProvesThatThereIsNone(t *testing.T) {
	for _, spans := range noneAtTheBound {
		buffers := ofSpans(spans)
		bound, least := pack.Bound(buffers), leastHeight(buffers, make([]int64, len(buffers)), 0, 0, math.MaxInt64)
		if least <= bound {
			t.Fatalf("least height %d, bound %d: nothing to prove", least, bound)
		}
		for capacity := bound - 1; capacity <= least+1; capacity++ {
			if _, ok, err := pack.Exact(t.Context(), buffers, capacity); err != nil || ok != (capacity >= least) {
				t.Errorf("capacity %d, least height %d: got %v, %v", capacity, least, ok, err)
			}
		}
	}
}

// TestExactFindsWhatWasCut cuts a rectangle into buffers and takes some away, so that a packing with waste surely exists.
func TestExactFindsWhatWasCut(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := mathrand.New(mathrand.NewPCG(seed, 0))
	for range 4000 {
		const height = 12
		cut := []pack.Buffer{{Upper: 8, Size: height}}
		for range 30 {
			b := &cut[rng.IntN(len(cut))]
			c := *b
			if rng.IntN(2) == 0 && b.Size > 1 {
				b.Size = 1 + rng.Int64N(b.Size-1)
				c.Size -= b.Size
			} else if b.Upper-b.Lower > 1 {
				b.Upper = b.Lower + 1 + rng.Int64N(b.Upper-b.Lower-1)
				c.Lower = b.Upper
			} else {
				continue
			}
			cut = append(cut, c)
		}
		rng.Shuffle(len(cut), func(i, j int) { cut[i], cut[j] = cut[j], cut[i] })
		buffers := cut[:len(cut)-rng.IntN(min(4, len(cut)))]
		offsets, ok, err := pack.Exact(t.Context(), buffers, height)
		if err != nil || !ok {
			t.Fatalf("seed %d: got %v, %v for %+v", seed, ok, err, buffers)
		}
		checkExact(t, buffers, offsets, height)
	}
}

// leastHeight returns the least height of a packing, or best if that is less. Laying the buffers of any packing, lowest
// first, each directly on the buffers already below it makes the packing canonical without growth. So it is enough to
// try all orders.
func leastHeight(buffers []pack.Buffer, offsets []int64, laid uint, height, best int64) int64 {
	if height >= best {
		return best
	}
	if laid == 1<<len(buffers)-1 {
		return height
	}
	for i, b := range buffers {
		if laid>>i&1 == 1 {
			continue
		}
		offsets[i] = 0
		for j, c := range buffers {
			if laid>>j&1 == 1 && b.Lower < c.Upper && c.Lower < b.Upper {
				offsets[i] = max(offsets[i], offsets[j]+c.Size)
			}
		}
		best = leastHeight(buffers, offsets, laid|1<<i, max(height, offsets[i]+b.Size), best)
	}
	return best
}

func checkExact(t *testing.T, buffers []pack.Buffer, offsets []int64, capacity int64) {
	t.Helper()
	if height, err := pack.Validate(buffers, offsets); err != nil || height > capacity {
		t.Fatalf("height %d at capacity %d, %v", height, capacity, err)
	}
}

// readExact reads one of the instances that mixed integer programs leave open after an hour.
func readExact(t testing.TB, name string) []pack.Buffer {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".1048576.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buffers, _, err := pack.ReadCSV(f)
	if err != nil {
		t.Fatal(err)
	}
	return buffers
}

func TestExactPacksTheChallengingInstances(t *testing.T) {
	names := []string{"A", "B", "C", "D"}
	if *exactAll {
		names = append(names, "E", "F")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			buffers := readExact(t, name)
			capacity := pack.Bound(buffers)
			if name == "D" {
				capacity = 1048576 // the least height that is known
			}
			offsets, ok, err := pack.Exact(t.Context(), buffers, capacity)
			if err != nil || !ok {
				t.Fatalf("got %v, %v", ok, err)
			}
			checkExact(t, buffers, offsets, capacity)
			if _, ok, err := pack.Exact(t.Context(), buffers, pack.Bound(buffers)-1); ok || err != nil {
				t.Errorf("below the bound: got %v, %v", ok, err)
			}
		})
	}
}

// endingContext has ended once it was asked often enough, so that a search can be ended in its midst without a clock.
type endingContext struct {
	context.Context
	asked, ends int
}

func (c *endingContext) Err() error {
	if c.asked++; c.asked > c.ends {
		return context.DeadlineExceeded
	}
	return nil
}

func TestExactEndsWithItsContext(t *testing.T) {
	buffers := readExact(t, "E") // takes more nodes than the search goes between two looks at ctx
	for _, ends := range []int{0, 1, 2} {
		ctx := &endingContext{Context: t.Context(), ends: ends}
		offsets, ok, err := pack.Exact(ctx, buffers, 1048576)
		if !errors.Is(err, context.DeadlineExceeded) || ok || offsets != nil {
			t.Errorf("ends after %d looks: got %v, %v, %v", ends, offsets, ok, err)
		}
	}
}

func TestExactIsDeterministic(t *testing.T) {
	buffers := readExact(t, "B")
	first, _, _ := pack.Exact(t.Context(), buffers, 1048576)
	again, _, _ := pack.Exact(t.Context(), buffers, 1048576)
	for i := range first {
		if first[i] != again[i] {
			t.Fatalf("buffer %d lies at %d, then at %d", i, first[i], again[i])
		}
	}
}

func TestExactRefusesWhatIsNoInstance(t *testing.T) {
	for name, buffers := range map[string][]pack.Buffer{
		"empty lifetime": {{Lower: 3, Upper: 3, Size: 1}},
		"no size":        {{Lower: 0, Upper: 1, Size: 0}},
		"sum too large":  {{Lower: 0, Upper: 1, Size: math.MaxInt64}, {Lower: 1, Upper: 2, Size: 1}},
	} {
		if _, ok, err := pack.Exact(t.Context(), buffers, math.MaxInt64); ok || err == nil {
			t.Errorf("%s: got %v, %v", name, ok, err)
		}
	}
	if offsets, ok, err := pack.Exact(t.Context(), nil, 0); len(offsets) != 0 || !ok || err != nil {
		t.Errorf("no buffers: got %v, %v, %v", offsets, ok, err)
	}
	extremes := []pack.Buffer{{Lower: math.MinInt64, Upper: math.MaxInt64, Size: 1 << 60}, {Lower: 0, Upper: 1, Size: 1 << 60}}
	if _, ok, err := pack.Exact(t.Context(), extremes, math.MaxInt64); !ok || err != nil {
		t.Errorf("extremes: got %v, %v", ok, err)
	}
}

func BenchmarkExact(b *testing.B) {
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		b.Run(name, func(b *testing.B) {
			buffers := readExact(b, name)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := pack.Exact(b.Context(), buffers, 1048576); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
