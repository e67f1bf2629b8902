package safetensors

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
)

// A region is the data of a tensor in a file, or of a slice of it: runs of equal length at equal distances.
type region struct {
	shape []int
	first int64 // position of the first run in the file
	run   int64 // length of each in bytes
	runs  int64
	apart int64 // from the start of one to the start of the next
}

func (r *region) size() int64 { return r.run * r.runs }

// whole returns the region of all of e.
func (h *header) whole(e *entry) region {
	return region{shape: e.Shape, first: h.data + e.begin, run: e.Size, runs: 1, apart: e.Size}
}

// slice returns the region of some indices along an axis.
func (h *header) slice(e *entry, axis, start, length int) (region, error) {
	n := len(e.Shape)
	if axis < -n || axis >= n {
		return region{}, fmt.Errorf("there is no axis %d of shape %v", axis, e.Shape)
	}
	axis = (axis + n) % n
	if start < 0 || length < 0 || start > e.Shape[axis]-length {
		return region{}, fmt.Errorf("%d indices from %d on are not inside of axis %d of shape %v", length, start, axis,
			e.Shape)
	}
	r := h.whole(e)
	r.shape = slices.Clone(e.Shape)
	r.shape[axis] = length
	if e.Size == 0 || length == 0 {
		r.run = 0
		return r, nil
	}
	inner := int64(e.DType.Size()) // bytes of one index
	for _, k := range e.Shape[axis+1:] {
		inner *= int64(k)
	}
	r.apart = inner * int64(e.Shape[axis])
	r.run = inner * int64(length)
	r.runs = e.Size / r.apart
	r.first += inner * int64(start)
	if r.run == r.apart { // adjacent runs are one
		r.run, r.runs, r.apart = r.size(), 1, r.size()
	}
	return r, nil
}

// spans yields the file positions at which the parts of bytes at to at+n of the region begin and end.
func (r *region) spans(at, n int64) iter.Seq2[int64, int64] {
	return func(yield func(begin, end int64) bool) {
		for n > 0 {
			i, inside := at/r.run, at%r.run
			take := min(n, r.run-inside)
			from := r.first + i*r.apart + inside
			if !yield(from, from+take) {
				return
			}
			at, n = at+take, n-take
		}
	}
}

// Load implements Checkpoint.
func (f *File) Load(p *tensor.Place, name string) (*tensor.Tensor, error) {
	e, err := f.entry(name)
	if err != nil {
		return nil, err
	}
	return f.load(p, e, f.header.whole(e))
}

// LoadSlice implements Checkpoint.
func (f *File) LoadSlice(p *tensor.Place, name string, axis, start, length int) (*tensor.Tensor, error) {
	e, err := f.entry(name)
	if err != nil {
		return nil, err
	}
	r, err := f.header.slice(e, axis, start, length)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: slice of tensor %s: %w", f.path, quoted(name), err)
	}
	return f.load(p, e, r)
}

// load loads a region of one tensor.
func (f *File) load(p *tensor.Place, e *entry, r region) (*tensor.Tensor, error) {
	var l loading
	defer l.end()
	if err := l.add(f, p, e, r); err != nil {
		return nil, err
	}
	if err := l.run(context.Background(), nil); err != nil {
		return nil, err
	}
	return l.keep()[e.Name], nil
}

// LoadAll implements Checkpoint.
func (f *File) LoadAll(
	ctx context.Context, p *tensor.Place, progress func(done, total int64),
) (map[string]*tensor.Tensor, error) {
	return loadAll(ctx, p, progress, f)
}

// loadAll loads all tensors of several files.
func loadAll(
	ctx context.Context, p *tensor.Place, progress func(done, total int64), files ...*File,
) (map[string]*tensor.Tensor, error) {
	for _, f := range files {
		for i := range f.header.entries {
			if _, err := f.loadable(i); err != nil {
				return nil, err
			}
		}
	}
	var l loading
	defer l.end()
	for _, f := range files {
		for i := range f.header.entries {
			e := &f.header.entries[i]
			if err := l.add(f, p, e, f.header.whole(e)); err != nil {
				return nil, err
			}
		}
	}
	if err := l.run(ctx, progress); err != nil {
		return nil, err
	}
	return l.keep(), nil
}

// A loading holds tensors that are being loaded. It owns the tensors until keep, and the files until end.
type loading struct {
	files  []*mapped.File
	made   map[string]*tensor.Tensor
	pieces []piece
	total  int64
	done   int64
}

// A piece is a range of bytes that is copied at once.
type piece struct {
	to     *tensor.Tensor
	at, n  int64 // its bytes of the region
	from   region
	memory *mapped.File
	f      *File // for messages
	name   string
}

// add makes the tensor for a region of an entry. It either uses the data in place or plans the pieces to copy.
func (l *loading) add(f *File, p *tensor.Place, e *entry, r region) error {
	fail := func(err error) error {
		return fmt.Errorf("safetensors: %s: tensor %s: %w", f.path, quoted(e.Name), err)
	}
	memory, err := f.hold()
	if err != nil {
		return err
	}
	l.files = append(l.files, memory)
	var t *tensor.Tensor
	b := memory.Bytes()
	size := r.size()
	if r.runs == 1 && !f.options.Copy && transfer.CanShare(p, e.DType, b[r.first:r.first+size]) {
		t, err = transfer.Share(p, memory, b[r.first:r.first+size], e.DType, r.shape, nil)
		l.done += size
	} else if t, err = transfer.New(p, e.DType, size, r.shape, nil); err == nil {
		for at := int64(0); at < size; at += transfer.Piece {
			l.pieces = append(l.pieces, piece{t, at, min(transfer.Piece, size-at), r, memory, f, e.Name})
		}
	}
	if err != nil {
		return fail(err)
	}
	if l.made == nil {
		l.made = map[string]*tensor.Tensor{}
	}
	l.made[e.Name] = t
	l.total += size
	return nil
}

// keep passes the tensors to the caller.
func (l *loading) keep() map[string]*tensor.Tensor {
	made := l.made
	l.made = nil
	if made == nil {
		made = map[string]*tensor.Tensor{}
	}
	return made
}

// end releases the tensors that were not kept, and the files.
func (l *loading) end() {
	for _, t := range l.made {
		t.Release()
	}
	for _, m := range l.files {
		_ = m.Release()
	}
}
