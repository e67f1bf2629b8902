package schedule

import (
	"fmt"
	"testing"
)

// BenchmarkDecision measures how long the choice of a storage takes, with all of n storages evictable. Each is made of
// two others, and a third of them is evicted. Policies that look at all storages take minutes to evict a third of
// 100,000.
func BenchmarkDecision(b *testing.B) {
	for _, policy := range []string{"chain", "dtr-eq", "dtr-local", "lru"} {
		for _, n := range []int{1000, 10_000, 100_000} {
			if n > 10_000 && policy != "chain" {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", policy, n), func(b *testing.B) {
				e := manyStorages(b, policy, n)
				for b.Loop() {
					if e.policy.victim(1) == None {
						b.Fatal("nothing can be evicted")
					}
				}
			})
		}
	}
}

func manyStorages(t testing.TB, policy string, n int) *Engine {
	p, err := NewPolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{Policy: p}, printless{})
	first, err := e.Constant(1)
	if err != nil {
		t.Fatal(err)
	}
	values := []Value{first}
	for i := range n {
		inputs := []Value{values[len(values)-1], values[len(values)*2/3]}
		size := int64(1000 * (1 + i%7))
		_, out, err := e.Call(Call{
			Name: "f", Inputs: inputs, Outputs: []Output{{Size: size, Alias: -1}}, Cost: int64(10 + i*i%1000),
		})
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, out...)
		if i%3 == 2 {
			e.evict(e.policy.victim(1))
		}
	}
	return e
}
