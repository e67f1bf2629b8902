package spans

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// TestTable compares a table with an array that says for each address which range it is in.
func TestTable(t *testing.T) {
	const seed, space = 1, 64
	rng := rand.New(rand.NewPCG(seed, 0))
	var tab Table[int]
	var owner [space + 1]int // 0: none; the last stays so
	next := 1
	for step := range 20_000 {
		at, size := rng.IntN(space), 1+rng.IntN(8)
		size = min(size, space-at)
		p := driver.Pointer(at)
		free := true
		for _, o := range owner[at : at+size] {
			free = free && o == 0
		}
		if got := tab.Free(p, int64(size)); got != free {
			t.Fatalf("seed %d, step %d: free(%d, %d) is %v in %v", seed, step, at, size, got, tab)
		}
		i := tab.Find(p)
		if (i >= 0) != (owner[at] != 0) || i >= 0 && tab[i].Value != owner[at] {
			t.Fatalf("seed %d, step %d: find(%d) is %d in %v", seed, step, at, i, tab)
		}
		starts := owner[at] != 0 && (at == 0 || owner[at-1] != owner[at])
		if got := tab.Starting(p); (got >= 0) != starts {
			t.Fatalf("seed %d, step %d: starting(%d) is %d in %v", seed, step, at, got, tab)
		}
		covered := true
		for _, o := range owner[at : at+size] {
			covered = covered && o != 0
		}
		from, to, ok := tab.Run(p, int64(size))
		if ok != covered || ok && (tab[from].Value != owner[at] || tab[to-1].Value != owner[at+size-1]) {
			t.Fatalf("seed %d, step %d: run(%d, %d) is %d, %d, %v in %v", seed, step, at, size, from, to, ok, tab)
		}
		switch {
		case free:
			tab.Insert(Entry[int]{At: p, Size: int64(size), Value: next})
			for j := at; j < at+size; j++ {
				owner[j] = next
			}
			next++
		case i >= 0:
			for j := range owner {
				if owner[j] == tab[i].Value {
					owner[j] = 0
				}
			}
			tab.Remove(i, i+1)
		}
	}
}
