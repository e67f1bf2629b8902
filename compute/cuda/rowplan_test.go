package cuda

import (
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestRowPlans: each row has room in the registers of its threads, or is split into parts that cover it.
func TestRowPlans(t *testing.T) {
	rng := testkit.Rand(t)
	for range 10_000 {
		d := []dtype.DType{dtype.Float16, dtype.Float32, dtype.Float64}[rng.IntN(3)]
		v, rows, n := 16/d.Size(), 1+rng.IntN(1<<rng.IntN(20)), 1+rng.IntN(1<<rng.IntN(28))
		units := rng.IntN(2) == 0
		if units {
			n = ceilDiv(n, v) * v
		}
		threads := []int{512, 1024}[rng.IntN(2)]
		p := planRows(d, rows, n, units, threads, 132)
		if p.splits > 0 {
			if p.kernel != rowsPart || p.chunk%16 != 0 || p.splits*p.chunk < n || (p.splits-1)*p.chunk >= n || p.blocks != rows*p.splits {
				t.Fatalf("%d rows of %d %v: %+v", rows, n, d, p)
			}
			continue
		}
		room := 8
		if p.kernel == rowsUnits32 {
			room = 32
			if d == dtype.Float64 {
				room = 16
			}
		}
		limit := 1024
		if p.kernel == rowsUnits32 {
			limit = threads
		}
		wholeBlock := p.group == p.threads && p.group%32 == 0
		if p.group*room < n || units == (p.kernel == rowsElements8) || p.threads > limit || p.blocks*(p.threads/p.group) < rows ||
			!wholeBlock && (p.group > 32 || p.group&(p.group-1) != 0 || p.threads%32 != 0) {
			t.Fatalf("%d rows of %d %v, units %v: %+v", rows, n, d, units, p)
		}
	}
}

// TestPartsShrink: repeated selection from parts of rows ends, and each part has enough elements for its result.
func TestPartsShrink(t *testing.T) {
	rng := testkit.Rand(t)
	for range 10_000 {
		rows, k := 1+rng.Int64N(1<<rng.IntN(17)), 1+rng.Int64N(sortBlockElements)
		n := 4*k + rng.Int64N(1<<rng.IntN(33))
		for steps := 0; ; steps++ {
			parts := planParts(rows, n, k, 132)
			if parts < 1 || n/parts < k || steps > 12 {
				t.Fatalf("%d rows of %d, %d wanted: %d parts after %d steps", rows, n, k, parts, steps)
			}
			if parts == 1 {
				break
			}
			n = parts * k
		}
	}
}
