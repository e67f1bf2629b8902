package cuda

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

const reduceThreads = 256 // Threads of kernels/reduce.cu and reduce_arg.cu

// A reducePlan says how elements are shared among threads and blocks.
type reducePlan struct {
	units          bool
	blocks, splits int
	params         reduceParams // shape alone: no pointers, nothing of the operation
}

// planReduce is the plan of a Reduce.
func planReduce(kind int, d dtype.DType, x driver.Pointer, kept, folded []axis, multiprocessors int) reducePlan {
	v := unitLanes(kind, d)
	return planUnits(v, int(x)%(v*d.Size()) == 0, 8, kept, folded, multiprocessors)
}

// planUnits chooses rows or columns, units of v elements or elements, and how many threads and blocks share a result.
// aligned says that x begins where a unit may; few is as for share. Each split has a unit, or elements at the end of
// its row that no whole unit covers.
func planUnits(v int, aligned bool, few int, kept, folded []axis, multiprocessors int) (p reducePlan) {
	kept, folded = append([]axis(nil), kept...), append([]axis(nil), folded...)
	perUnit := 1
	columns := len(folded) == 0 || len(kept) > 0 && magnitude(kept[0].stride[0]) < magnitude(folded[0].stride[0])
	switch {
	case v == 1 || len(kept)+len(folded) == 0:
	case columns:
		if kept[0].stride[0] == 1 && kept[0].n%v == 0 && aligned && divisible(kept[1:], 0, v) &&
			divisible(folded, 0, v) {
			kept[0].n, kept[0].stride[0], kept[0].stride[1] = kept[0].n/v, v, kept[0].stride[1]*v
			p.units = true
		}
	case folded[0].stride[0] != 1:
	case len(folded) == 1 && folded[0].n >= 4*v:
		folded[0].stride[0] = v
		perUnit = v // n stays that of elements
		p.units = true
		p.params.flags = reducePeel
	case folded[0].n%v == 0 && aligned && divisible(folded[1:], 0, v) && divisible(kept, 0, v):
		folded[0].n, folded[0].stride[0] = folded[0].n/v, v
		p.units = true
	}
	if columns {
		p.params.flags |= reduceColumns
	}
	outputs, n := countAlong(kept), countAlong(folded)
	group, blocks, splits, chunk := share(outputs, n/perUnit, few, columns, multiprocessors)
	p.blocks, p.splits = blocks, splits
	p.params.outputs, p.params.n, p.params.chunk, p.params.group = int64(outputs), int64(n), int64(chunk), uint32(group)
	p.params.kept, p.params.folded = axes2(kept), axes1(folded)
	return p
}

// share finds how many threads work on one result, or as many neighbouring ones as a block has room for, the blocks
// that all results take, and into how many splits of how many units each result's work is cut. A thread of its own is
// not worth it for few units, unless there are threads to spare.
func share(outputs, units, few int, columns bool, multiprocessors int) (group, blocks, splits, chunk int) {
	const threads, most = reduceThreads, 1024 // units of a thread at most: more lose precision
	full := multiprocessors * 2048            // threads that the device can hold
	group = 1
	if columns {
		group = min(threads/min(32, powerAbove(outputs)), powerAbove(units))
	} else {
		for group < threads && (units > group*few || outputs*group < full && group*2 <= units) {
			group *= 2
		}
		// Units are loaded four at a time: fewer threads, if that leaves less undone in the last time.
		for group > 32 && outputs*group/2 >= full && undone(units, group/2) < undone(units, group) {
			group /= 2
		}
	}
	blocks = ceilDiv(outputs, threads/group)
	splits = 1
	if wanted := multiprocessors * 16; blocks < wanted {
		// twice what the device can hold, so that few wait for the last
		splits = max(1, min(ceilDiv(wanted, blocks), units/(group*16)))
	}
	splits = min(max(splits, ceilDiv(units, group*most)), 65535)
	chunk = max(1, ceilDiv(units, splits))
	return group, blocks, max(1, ceilDiv(units, chunk)), chunk
}

// undone is the tenths of the loads of a group's threads, four units each time, that find no unit.
func undone(units, group int) int {
	places := ceilDiv(units, 4*group) * 4 * group
	return 10 * (places - units) / places
}
