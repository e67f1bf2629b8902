package cuda

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// randomArray returns an array of random lengths whose axes lie in memory in any order, some backwards, some with gaps
// and some with strides of 0.
func randomArray(rng *rand.Rand, d dtype.DType, shape []int) backend.Array {
	a := backend.Array{DType: d, Shape: shape, Strides: make([]int, len(shape))}
	step := 1
	for _, k := range rng.Perm(len(shape)) {
		switch rng.IntN(8) {
		case 0:
			continue
		case 1:
			step += rng.IntN(3)
		}
		a.Strides[k] = step
		if rng.IntN(4) == 0 {
			a.Strides[k] = -step
		}
		step *= max(1, shape[k])
	}
	return a
}

func randomShape(rng *rand.Rand) []int {
	shape, n := make([]int, rng.IntN(6)), 1
	for k := range shape {
		shape[k] = []int{1, 2, 3, 4, 8, 16, 33, 500}[rng.IntN(8)]
		if n *= shape[k]; n > 5000 {
			n, shape[k] = n/shape[k], 1
		}
	}
	return shape
}

// offsets counts how often each combination of offsets of two operands is visited.
func offsets(list []axis, visit func(first, second int)) {
	n := countAlong(list)
	for i := range n {
		rest, first, second := i, 0, 0
		for _, a := range list {
			first, second = first+rest%a.n*a.stride[0], second+rest%a.n*a.stride[1]
			rest /= a.n
		}
		visit(first, second)
	}
}

// TestAxesVisitTheSameElements: merging axes changes only the order of elements.
func TestAxesVisitTheSameElements(t *testing.T) {
	rng := testkit.Rand(t)
	for range 500 {
		shape := randomShape(rng)
		x, y := randomArray(rng, dtype.Float32, shape), randomArray(rng, dtype.Float32, shape)
		merged := axesOf(func(int) bool { return true }, &x, &y)
		var plain []axis
		for k, n := range shape {
			plain = append(plain, axis{n: n, stride: [3]int{x.Strides[k], y.Strides[k]}})
		}
		seen := map[[2]int]int{}
		offsets(plain, func(a, b int) { seen[[2]int{a, b}]++ })
		offsets(merged, func(a, b int) { seen[[2]int{a, b}]-- })
		for at, n := range seen {
			if n != 0 {
				t.Fatalf("axes %v of %v and %v: offsets %v are visited %d times less", merged, x, y, at, n)
			}
		}
		for k := 1; k < len(merged); k++ {
			if magnitude(merged[k].stride[0]) < magnitude(merged[k-1].stride[0]) {
				t.Fatalf("axes %v are not in the order of the first strides", merged)
			}
		}
	}
}

// TestReducePlansCoverEverything follows a plan as kernels/reduce.cu does: each result combines each of its elements
// once.
func TestReducePlansCoverEverything(t *testing.T) {
	rng := testkit.Rand(t)
	for range 400 {
		shape := randomShape(rng)
		x := randomArray(rng, dtype.Float32, shape)
		if rng.IntN(3) == 0 {
			x = packed(shape...)
		}
		x.DType = []dtype.DType{dtype.Uint8, dtype.Float16, dtype.Float32, dtype.Float64}[rng.IntN(4)]
		over := rng.IntN(1 << len(shape))
		result := append([]int(nil), shape...)
		for k := range result {
			if over>>k&1 == 1 {
				result[k] = 1
			}
		}
		dst := packed(result...)
		reduced := func(k int) bool { return dst.Shape[k] == 1 }
		folded := axesOf(reduced, &x)
		kept := axesOf(func(k int) bool { return !reduced(k) }, &x, &dst)
		start := driver.Pointer(1<<20 + rng.IntN(4)*x.DType.Size())

		want := map[[2]int]int{}
		offsets(kept, func(base, out int) {
			offsets(folded, func(at, _ int) { want[[2]int{out, base + at}]++ })
		})
		p := planReduce(reduceSum, x.DType, start, kept, folded, 1+rng.IntN(4))
		followReduce(t, &p, x.DType, start, func(out, at int) { want[[2]int{out, at}]-- })
		for at, n := range want {
			if n != 0 {
				t.Fatalf("%v of %v reduced over %b at %#x, plan %+v: result %d and element %d meet %d times less",
					x, shape, over, start, p, at[0], at[1], n)
			}
		}
	}
}

// followReduce visits what each thread of each block combines, as elements of the result and of x.
func followReduce(t *testing.T, p *reducePlan, d dtype.DType, start driver.Pointer, visit func(out, at int)) {
	v := 1
	if p.units {
		v = unitLanes(reduceSum, d)
	}
	q, columns := &p.params, p.params.flags&reduceColumns != 0
	place := func(rank int64, n *strides, stride *strides, i int64) (at int64) {
		for k := range rank {
			r := i
			if k+1 < rank {
				r, i = i%n[k], i/n[k]
			}
			at += r * stride[k]
		}
		return at
	}
	others := reduceThreads / int64(q.group)
	for block := range int64(p.blocks) {
		for thread := range int64(reduceThreads) {
			lane, output := thread%int64(q.group), block*others+thread/int64(q.group)
			if columns {
				lane, output = thread/others, block*others+thread%others
			}
			if output >= q.outputs {
				continue
			}
			x := place(q.kept.rank, &q.kept.n, &q.kept.stride[0], output)
			out := place(q.kept.rank, &q.kept.n, &q.kept.stride[1], output)
			n := q.n
			head := int64(0)
			if q.flags&reducePeel != 0 {
				address := int64(start)/int64(d.Size()) + x
				head = min(n, (int64(v)-address%int64(v))%int64(v))
				whole := (n - head) / int64(v)
				for i := lane; i < n-whole*int64(v); i += int64(q.group) {
					at := i
					if i >= head {
						at += whole * int64(v)
					}
					visit(int(out), int(x+at))
				}
				n = whole
			}
			for split := range int64(p.splits) {
				for i := split*q.chunk + lane; i < min(n, (split+1)*q.chunk); i += int64(q.group) {
					at := x + head + place(q.folded.rank, &q.folded.n, &q.folded.stride[0], i)
					if v > 1 && (int64(start)/int64(d.Size())+at)%int64(v) != 0 {
						t.Fatalf("plan %+v: a unit at element %d from %#x is not aligned", p, at, start)
					}
					for k := range int64(v) {
						if columns {
							visit(int(out+k*q.kept.stride[1][0]/int64(v)), int(at+k))
						} else {
							visit(int(out), int(at+k))
						}
					}
				}
			}
		}
	}
}

// TestSharesAreBounded: whatever the shape, blocks are full, splits are no more than a grid has, and no thread adds up
// more than keeps the error of a sum small.
func TestSharesAreBounded(t *testing.T) {
	rng := testkit.Rand(t)
	for range 10_000 {
		outputs, units, columns := 1+rng.IntN(1<<rng.IntN(30)), 1+rng.IntN(1<<rng.IntN(34)), rng.IntN(2) == 0
		group, blocks, splits, chunk := share(outputs, units, 8, columns, 132)
		per := ceilDiv(chunk, group)
		if group < 1 || group > reduceThreads || group&(group-1) != 0 || blocks*(reduceThreads/group) < outputs ||
			splits*chunk < units || (splits-1)*chunk >= units || splits > 65535 || per > 1024 && splits < 60_000 {
			t.Fatalf("%d results of %d units, columns %v: group %d, %d blocks, %d splits of %d", outputs, units, columns,
				group, blocks, splits, chunk)
		}
	}
}
