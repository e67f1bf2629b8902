package cuda

import (
	"math"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// sortParams is struct Sort of kernels/sort.cuh.
type sortParams struct {
	x, values, indices                    driver.Pointer
	keys, keysOut, places, placesOut      driver.Pointer
	counts, totals                        driver.Pointer
	rows, row, n, k                       int64
	xStride, valuesStride, indicesStride  int64
	part                                  int64
	sign, infinity, flip                  uint64
	size, kind, shift, tiles, padded, cut uint32 // cut: parts
	kept                                  axes[[3]strides]
}

// The kernels of sort.cu and sort_block.cu.
const (
	sortBlock = iota
	sortKeys
	sortCount
	sortScan
	sortMove
	sortSelect
	sortKinds
)

var sortNames = [sortKinds]string{"block", "keys", "count", "scan", "move", "select"}

// Kernels are numbered by what they do and by whether keys have 64 bits.
var sortFamily = newFamily(sortKinds*2, unsafe.Sizeof(sortParams{}), func(i int) (module, kernel string) {
	key := [2]string{"u32", "u64"}[i%2]
	module = "sort_"
	if i/2 == sortBlock || i/2 == sortSelect {
		module = "sort_block_"
	}
	return module + key, "sort_" + sortNames[i/2] + "_" + key
})

// Constants of those sources, and the rows of a launch, which are along the grid's second axis.
const (
	sortBlockElements = 2048
	sortBlockThreads  = 512
	sortThreads       = 256
	sortTile          = 4096
	sortRows          = 65535
)

// A sorting is one call of Sort or TopK.
type sorting struct {
	b    *Backend
	q    backend.Queue
	wide int // 1: keys have 64 bits
	p    sortParams
}

// Sort sorts short rows in shared memory, and long ones by their digits.
func (b *Backend) Sort(
	q backend.Queue, descending bool, values, indices *backend.Array, x backend.Array, along int,
) error {
	s, err := b.sorting(q, "compute/cuda.Sort", descending, values, indices, &x, along)
	if err != nil || s == nil {
		return err
	}
	return s.sort()
}

// sorting fills in all that does not depend on how the sorting is done. It returns nil if there is nothing to do.
func (b *Backend) sorting(
	q backend.Queue, call string, descending bool, values, indices *backend.Array, x *backend.Array, along int,
) (*sorting, error) {
	d := x.DType
	if d != dtype.Bool && !isNumber(d) || values != nil && values.DType != d || indices != nil &&
		indices.DType != dtype.Int64 {
		return nil, unsupported(call, "%v", d)
	}
	result := values
	if result == nil {
		result = indices
	}
	if result == nil || countOf(result) == 0 {
		return nil, nil
	}
	if x.Shape[along] > math.MaxUint32 {
		return nil, unsupported(call, "an axis of %d elements, at most %d", x.Shape[along], uint32(math.MaxUint32))
	}
	kept := axesOf(func(k int) bool { return k != along }, x, values, indices)
	s := &sorting{b: b, q: q, p: sortParams{
		x: at(*x), rows: int64(countAlong(kept)), n: int64(x.Shape[along]), k: int64(result.Shape[along]),
		xStride: int64(x.Strides[along]), size: uint32(d.Size()), sign: 1 << (8*d.Size() - 1), kept: axes3(kept),
	}}
	if values != nil {
		s.p.values, s.p.valuesStride = at(*values), int64(values.Strides[along])
	}
	if indices != nil {
		s.p.indices, s.p.indicesStride = at(*indices), int64(indices.Strides[along])
	}
	if d.Size() == 8 {
		s.wide = 1
	}
	if descending {
		s.p.flip = s.p.sign | (s.p.sign - 1)
	}
	switch {
	case isFloat(d):
		s.p.kind, s.p.infinity = 2, map[dtype.DType]uint64{
			dtype.Float16: 0x7c00, dtype.BFloat16: 0x7f80, dtype.Float32: 0x7f800000, dtype.Float64: 0x7ff0000000000000,
		}[d]
	case d.Kind() == dtype.KindSigned:
		s.p.kind = 1
	}
	return s, nil
}

// keySize is the size of a key, and that of a key and a place.
func (s *sorting) keySize() int64  { return 4 + 4*int64(s.wide) }
func (s *sorting) bothSize() int64 { return s.keySize() + 4 }

func (s *sorting) run(kernel int, x, y int64, threads uint32, p *sortParams) error {
	g := shape{grid: [3]uint32{uint32(x), uint32(y)}, block: [3]uint32{threads}}
	return launch(s.b, s.q, sortFamily, kernel*2+s.wide, g, *p)
}

// sort writes the first k elements of each sorted row.
func (s *sorting) sort() error {
	if s.p.n <= sortBlockElements {
		return s.block(&s.p)
	}
	// Rows are sorted some at a time, so that scratch memory is that for 2^26 elements, or for one row.
	rows := min(max(1<<26/s.p.n, 1), s.p.rows, sortRows)
	tiles := (s.p.n + sortTile - 1) / sortTile
	places := rows * s.p.n // of one of two areas
	counts := rows * 256 * tiles
	area, free, err := scratch(s.q, aligned(2*places*s.keySize())+aligned(2*places*4)+aligned(counts*4)+rows*256*4)
	if err != nil {
		return err
	}
	defer free()
	d := digits{keys: area, tiles: tiles}
	d.places = d.keys + driver.Pointer(aligned(2*places*s.keySize()))
	d.counts = d.places + driver.Pointer(aligned(2*places*4))
	d.totals = d.counts + driver.Pointer(aligned(counts*4))
	d.otherKeys, d.otherPlaces = d.keys+driver.Pointer(places*s.keySize()), d.places+driver.Pointer(places*4)
	for row := int64(0); row < s.p.rows; row += rows {
		p := s.p
		p.row, p.rows = row, min(rows, s.p.rows-row)
		if err := s.digits(p, d); err != nil {
			return err
		}
	}
	return nil
}

// aligned is size rounded up so that what follows is aligned.
func aligned(size int64) int64 { return (size + 255) &^ 255 }

// block sorts rows in shared memory: p.n of them at most sortBlockElements.
func (s *sorting) block(p *sortParams) error {
	p.padded = uint32(powerAbove(int(p.n)))
	together := int64(sortBlockElements / p.padded)
	return s.run(sortBlock, (p.rows+together-1)/together, 1, sortBlockThreads, p)
}

// digits is the scratch memory of a sort by digits: two areas of keys and of places, and counts.
type digits struct {
	keys, otherKeys, places, otherPlaces, counts, totals driver.Pointer
	tiles                                                int64
}

// digits sorts p.rows rows by their digits, the lowest first. The first pass reads the elements, unless they do not lie
// side by side, and the last one writes the results.
func (s *sorting) digits(p sortParams, d digits) error {
	p.counts, p.totals, p.tiles = d.counts, d.totals, uint32(d.tiles)
	if p.xStride != 1 {
		p.keys = d.keys
		if err := s.run(sortKeys, (p.n+4*sortThreads-1)/(4*sortThreads), p.rows, sortThreads, &p); err != nil {
			return err
		}
	}
	scanning := int64(256) // blocks of a row: one for each digit, or one for all
	if d.tiles <= 32 {
		scanning = 1
	}
	bits := 8 * p.size
	for p.shift = 0; p.shift < bits; p.shift += 8 {
		p.keysOut, p.placesOut = d.otherKeys, d.otherPlaces
		if p.shift+8 == bits {
			p.keysOut, p.placesOut = 0, 0
		}
		if err := s.run(sortCount, d.tiles, p.rows, sortThreads, &p); err != nil {
			return err
		}
		if err := s.run(sortScan, scanning, p.rows, sortThreads, &p); err != nil {
			return err
		}
		if err := s.run(sortMove, d.tiles, p.rows, sortThreads, &p); err != nil {
			return err
		}
		p.keys, p.places = p.keysOut, p.placesOut
		d.keys, d.otherKeys, d.places, d.otherPlaces = d.otherKeys, d.keys, d.otherPlaces, d.places
	}
	return nil
}
