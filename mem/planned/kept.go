package planned

import "github.com/ashlar-go/ashlar/driver"

// keptSizes guesses which requests are for memory that stays: weights, and blocks of the size of a weight, such as
// gradients and the state of optimizers. Weights are what is allocated before much is freed.
type keptSizes struct {
	blocks map[driver.Pointer]int64 // sizes of the live blocks allocated before known was set
	counts map[int64]int            // their numbers, by size
	live   int64                    // bytes
	freed  int64                    // bytes
	known  bool                     // the weights are complete
}

// The weights are complete once more than 1/mostFreed of the live bytes has been freed.
const mostFreed = 8

func (k *keptSizes) alloc(p driver.Pointer, size int64) {
	if k.known {
		return
	}
	if k.counts == nil {
		k.blocks, k.counts = map[driver.Pointer]int64{}, map[int64]int{}
	}
	k.blocks[p] = size
	k.counts[size]++
	k.live += size
}

// free notes a free. Activations that were there when the weights were complete do not count as weights.
func (k *keptSizes) free(p driver.Pointer) {
	size, ok := k.blocks[p]
	if !ok {
		return
	}
	delete(k.blocks, p)
	if k.counts[size]--; k.counts[size] == 0 {
		delete(k.counts, size)
	}
	k.live -= size
	k.freed += size
	k.known = k.known || k.freed > k.live/mostFreed
}

// likely reports whether a block of this size may stay: it has the size of a weight, or twice that size, as a copy of a
// weight in another precision has.
func (k *keptSizes) likely(size int64) bool {
	return size > smallest && (!k.known || k.counts[roundUp(size)] > 0 || k.counts[roundUp(size/2)] > 0)
}
