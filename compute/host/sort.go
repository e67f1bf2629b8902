package host

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// Sort sorts lines along axis, stably, by radix.
func (b *Backend) Sort(
	q backend.Queue, descending bool, values, indices *backend.Array, x backend.Array, axis int,
) error {
	return b.order(q, "sort", descending, values, indices, x, axis)
}

// TopK finds the first of each line as it would be sorted.
func (b *Backend) TopK(q backend.Queue, least bool, values, indices *backend.Array, x backend.Array, axis int) error {
	return b.order(q, "topk", !least, values, indices, x, axis)
}

// order puts the first elements of each line, as many as there is room for, into values, and their indices into
// indices.
func (b *Backend) order(
	q backend.Queue, name string, descending bool, values, indices *backend.Array, x backend.Array, axis int,
) error {
	rank, ok := rankOf(x.DType, descending)
	if !ok {
		return unsupportedCall(name, x.DType)
	}
	from := in(x)
	operands := []array{from}
	for _, a := range []*backend.Array{values, indices} {
		if a != nil {
			operands = append(operands, out(*a))
		}
	}
	if len(operands) == 1 {
		return nil
	}
	shape := operands[1].shape
	k, axes := shape[axis], lastOf(from.rank, axis)
	lines := planOf(shape[:from.rank], axes, operands[1:]...)
	source := planOf(x.Shape, axes, from)
	if lines.n == 0 {
		return nil
	}
	n, stride := x.Shape[axis], x.Strides[axis]
	return b.launch(q, name, func(mem *[maxOperands][]byte) {
		b.parallelRanges(lines.n/k, grainBytes/(n*slow), func(lo, hi int) {
			work := workspaces.Get().(*workspace)
			defer workspaces.Put(work)
			t := ordering{
				ranking: rank, n: n, k: k, stride: stride,
				x: readerOf(&source, 0, mem[0], x.DType, x.DType, work), start: cursorOf(&source, 0),
				entries: make([]entry, n), other: make([]entry, n),
			}
			next := 0
			if values != nil {
				w := writerOf(&lines, next, mem[1+next], x.DType, x.DType, work)
				w.work = &work[2] // the reader has the first
				t.values = &w
				next++
			}
			if indices != nil {
				w := writerOf(&lines, next, mem[1+next], dtype.Int64, dtype.Int64, work)
				w.work = &work[3]
				t.indices = &w
			}
			for ; lo < hi; lo++ {
				t.line(lo)
			}
		})
	}, operands...)
}

// lastOf returns all axes, with axis last.
func lastOf(rank, axis int) []int {
	order := make([]int, 0, rank)
	for i := range rank {
		if i != axis {
			order = append(order, i)
		}
	}
	return append(order, axis)
}

// An ordering does lines one after the other.
type ordering struct {
	ranking
	n, k, stride    int
	x               reader
	start           cursor
	values, indices *writer // or nil
	entries, other  []entry
}

// line does one.
func (t *ordering) line(line int) {
	for lo := 0; lo < t.n; {
		m := t.x.p.length(line*t.n+lo, line*t.n+t.n, true)
		t.keys(t.entries[lo:lo+m], t.x.block(line*t.n+lo, m), lo)
		lo += m
	}
	first := t.first()
	t.start.seek(line * t.n)
	for lo := 0; lo < t.k; {
		at := line*t.k + lo
		m := min(t.k-lo, pieceLen)
		if t.values != nil {
			t.move(t.values.block(at, m), first[lo:lo+m])
			t.values.commit()
		}
		if t.indices != nil {
			to := viewOf[int64](t.indices.block(at, m))
			for i, e := range first[lo : lo+m] {
				to[i] = int64(e.at)
			}
			t.indices.commit()
		}
		lo += m
	}
}

// first returns the entries of the first k elements, in order.
func (t *ordering) first() []entry {
	if t.k > t.n/8 || t.n <= 64 {
		return radix(t.entries, t.other, t.size)[:t.k]
	}
	heap := t.other[:t.k]
	copy(heap, t.entries)
	for i := len(heap)/2 - 1; i >= 0; i-- {
		siftDown(heap, i)
	}
	for _, e := range t.entries[t.k:] {
		if e.key < heap[0].key { // an equal key comes later
			heap[0] = e
			siftDown(heap, 0)
		}
	}
	slices.SortFunc(heap, compare)
	return heap
}

// siftDown restores the heap order at i: no entry comes before its children.
func siftDown(heap []entry, i int) {
	for {
		below := 2*i + 1
		if below >= len(heap) {
			return
		}
		if below+1 < len(heap) && compare(heap[below], heap[below+1]) < 0 {
			below++
		}
		if compare(heap[i], heap[below]) >= 0 {
			return
		}
		heap[i], heap[below] = heap[below], heap[i]
		i = below
	}
}

func compare(a, b entry) int {
	if a.key != b.key {
		return cmp.Compare(a.key, b.key)
	}
	return a.at - b.at
}

// move gets the elements of entries.
func (t *ordering) move(dst []byte, entries []entry) {
	switch t.size {
	case 1:
		moveTo(viewOf[uint8](dst), viewOf[uint8](t.x.mem), t.start.at, t.stride, entries)
	case 2:
		moveTo(viewOf[uint16](dst), viewOf[uint16](t.x.mem), t.start.at, t.stride, entries)
	case 4:
		moveTo(viewOf[uint32](dst), viewOf[uint32](t.x.mem), t.start.at, t.stride, entries)
	case 8:
		moveTo(viewOf[uint64](dst), viewOf[uint64](t.x.mem), t.start.at, t.stride, entries)
	}
}

func moveTo[T any](dst, src []T, at, stride int, entries []entry) {
	for i, e := range entries {
		dst[i] = src[at+e.at*stride]
	}
}
