package cuda

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
)

// TopK of long rows with a small k selects before it sorts.
func (b *Backend) TopK(q backend.Queue, least bool, values, indices *backend.Array, x backend.Array, along int) error {
	s, err := b.sorting(q, "compute/cuda.TopK", !least, values, indices, &x, along)
	if err != nil || s == nil {
		return err
	}
	if s.p.n < 1024 || s.p.k > sortBlockElements || s.p.k*4 > s.p.n {
		return s.sort()
	}
	return s.selected()
}

// selected takes the k least keys of each part of a row, then those of parts of what these have, and so on until there
// is one part, and sorts them.
func (s *sorting) selected() error {
	rows, k := min(s.p.rows, sortRows), s.p.k
	// Two areas take turns: no later step leaves more than the first, nor more than the second in the other's turn.
	n1 := planParts(rows, s.p.n, k, s.b.multiprocessors) * k
	n2 := planParts(rows, n1, k, s.b.multiprocessors) * k
	size1, size2 := aligned(rows*n1*s.bothSize()), rows*n2*s.bothSize()
	area, free, err := scratch(s.q, size1+size2)
	if err != nil {
		return err
	}
	defer free()
	for row := int64(0); row < s.p.rows; row += rows {
		p := s.p
		p.row, p.rows = row, min(rows, s.p.rows-row)
		from, to := area+driver.Pointer(size1), area
		for parts := int64(2); parts > 1; {
			parts = planParts(rows, p.n, k, s.b.multiprocessors)
			p.cut, p.part = uint32(parts), p.n/parts
			p.keysOut, p.placesOut = to, to+driver.Pointer(p.rows*parts*k*s.keySize())
			if err := s.run(sortSelect, parts, p.rows, sortThreads, &p); err != nil {
				return err
			}
			p.keys, p.places, p.n = p.keysOut, p.placesOut, parts*k
			from, to = to, from
		}
		if err := s.block(&p); err != nil {
			return err
		}
	}
	return nil
}

// planParts is into how many parts a row is cut: enough to fill the device, but of at least 4096 elements and 8 times
// what each leaves.
func planParts(rows, n, k int64, multiprocessors int) int64 {
	parts := (int64(multiprocessors)*8 + rows - 1) / rows
	return max(1, min(parts, n/max(8*k, 4096)))
}
