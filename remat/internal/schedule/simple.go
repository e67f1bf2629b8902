package schedule

import "math/rand/v2"

// lru evicts the storage that was not accessed for the longest time.
type lru struct{ base }

func (p *lru) victim(int64) Storage {
	return p.least(func(_ Storage, s *storage) float64 { return float64(s.accessed) })
}

// largest evicts the largest storage.
type largest struct{ base }

func (p *largest) victim(int64) Storage {
	return p.least(func(_ Storage, s *storage) float64 { return -float64(s.size) })
}

// random evicts any storage. Its choices depend on the seed only.
type random struct {
	base
	rng *rand.Rand
}

func (p *random) victim(int64) Storage { return p.e.pool[p.rng.IntN(len(p.e.pool))] }
