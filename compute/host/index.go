package host

import (
	"sync"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// Gather moves elements of x that index names along axis.
func (b *Backend) Gather(q backend.Queue, dst, x, index backend.Array, axis int) error {
	return b.gather(q, "gather", dst, x, index, axis)
}

// IndexSelect is a gather whose index is the same along all other axes: whole rows are moved where they are contiguous.
func (b *Backend) IndexSelect(q backend.Queue, dst, x, index backend.Array, axis int) error {
	strides := make([]int, len(dst.Shape))
	strides[axis] = index.Strides[0]
	index.Shape, index.Strides = dst.Shape, strides
	return b.gather(q, "index_select", dst, x, index, axis)
}

func (b *Backend) gather(q backend.Queue, name string, dst, x, index backend.Array, axis int) error {
	to, from, by := out(dst), in(x), in(index)
	p := anyOrder(dst.Shape, to, from.without(axis), by)
	if p.n == 0 {
		return nil
	}
	stride, limit := x.Strides[axis], x.Shape[axis]
	return b.launch(q, name, func(mem *[maxOperands][]byte) {
		f := faults{at: p.n}
		b.parallelRanges(p.n, grainBytes/(2*to.size+by.size+moderate), func(lo, hi int) {
			work := workspaces.Get().(*workspace)
			defer workspaces.Put(work)
			w := writerOf(&p, 0, mem[0], to.dtype, to.dtype, work)
			from := cursorOf(&p, 1)
			r := readerOf(&p, 2, mem[2], by.dtype, dtype.Int64, work)
			for lo < hi {
				n := p.length(lo, hi, true)
				from.seek(lo)
				t := gathering{
					cursor: &from, mem: mem[1], index: viewOf[int64](r.block(lo, n)), stride: stride,
					limit: limit,
				}
				t.repeated = r.constant
				if bad := t.run(w.block(lo, n), to.size); bad >= 0 {
					f.add(lo+bad, t.index[bad])
				}
				w.commit()
				lo += n
			}
		})
		b.fail(&f, name, limit)
	}, to, from, by)
}

// A gathering is a block of elements to be gathered: element i is index[i] strides from where the cursor is.
type gathering struct {
	*cursor
	mem           []byte
	index         []int64
	stride, limit int
	repeated      bool // the index is the same along a row
}

// run gathers into dst, and returns the first that has an index out of range, or -1.
func (t *gathering) run(dst []byte, size int) (bad int) {
	switch size {
	case 1:
		return gatherInto(t, viewOf[uint8](dst))
	case 2:
		return gatherInto(t, viewOf[uint16](dst))
	case 4:
		return gatherInto(t, viewOf[uint32](dst))
	case 8:
		return gatherInto(t, viewOf[uint64](dst))
	}
	return gatherInto(t, viewOf[[2]uint64](dst))
}

func gatherInto[T comparable](t *gathering, dst []T) (bad int) {
	bad = -1
	src, step := viewOf[T](t.mem), t.p.stride(t.k)
	for i := 0; i < len(dst); {
		at, m := t.cursor.run(len(dst) - i)
		row, index := dst[i:i+m], t.index[i:i+m]
		if first := index[0]; t.repeated && step == 1 && uint64(first) < uint64(t.limit) {
			copy(row, src[at+int(first)*t.stride:])
			i += m
			continue
		}
		for k, j := range index {
			if uint64(j) >= uint64(t.limit) {
				clear(row[k : k+1])
				if bad < 0 {
					bad = i + k
				}
			} else {
				row[k] = src[at+int(j)*t.stride]
			}
			at += step
		}
		i += m
	}
	return bad
}

// faults keeps the first index out of range: that of the element with the lowest number.
type faults struct {
	mu    sync.Mutex
	at    int // of the element; beyond all if there is none
	index int64
	found bool
}

func (f *faults) add(at int, index int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at < f.at {
		f.at, f.index, f.found = at, index, true
	}
}

// fail keeps what was found for Failed, unless there is something already.
func (b *Backend) fail(f *faults, op string, size int) {
	if f.found {
		b.failed.CompareAndSwap(nil, &backend.IndexError{Op: op, Index: f.index, Size: int64(size)})
	}
}
