package cuda

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestArgReducePlansLeaveNoSplitEmpty: each split has at least one element, wherever its row begins. An empty split
// would have no result.
func TestArgReducePlansLeaveNoSplitEmpty(t *testing.T) {
	rng := testkit.Rand(t)
	for range 20_000 {
		d := []dtype.DType{dtype.Uint8, dtype.BFloat16, dtype.Float32, dtype.Int64}[rng.IntN(4)]
		v := 16 / max(2, d.Size())
		n, rows, multiprocessors := 2+rng.IntN(1<<(1+rng.IntN(28))), 1+rng.IntN(3), []int{132, 10_000}[rng.IntN(2)]
		start := driver.Pointer(1<<20 + rng.IntN(v)*d.Size())
		plan := func() reducePlan {
			kept := axesOf(func(k int) bool { return k == 0 }, new(packed(rows, n)), new(packed(rows, 1)))
			return planArgReduce(d, start, kept, []axis{{n: n, stride: [3]int{1}}}, multiprocessors)
		}
		p := plan()
		if p.splits > 1 { // as many elements as leave least for the last split
			n = (p.splits-1)*int(p.params.chunk)*v + rng.IntN(v)
			p = plan()
		}
		for head := range v { // elements before the first unit
			units, rest := n, 0
			if p.params.flags&reducePeel != 0 {
				units, rest = (n-head)/v, (n-head)%v
			} else if p.units {
				units = n / v
			}
			first := (p.splits - 1) * int(p.params.chunk)
			if first > units || first == units && rest == 0 || p.splits*int(p.params.chunk) < units {
				t.Fatalf("rows of %d %v, %d elements before a unit: %d splits of %d units do not share %d and %d elements",
					n, d, head, p.splits, p.params.chunk, units, rest)
			}
		}
	}
}
