package cuda

import "github.com/ashlar-go/ashlar/dtype"

// The kernels of softmax.cu and norm.cu for rows, in their order; softmax has one more, for columns.
const (
	rowsUnits8 = iota
	rowsElements8
	rowsUnits32
	rowsPart
	rowsWrite
	rowsColumns
	rowKinds
)

var rowNames = [rowKinds]string{"u8", "e8", "u32", "part", "write", "columns"}

// A rowPlan says how rows of n elements are shared among threads and blocks.
type rowPlan struct {
	kernel         int // rowsPart where rows are split: rowsWrite follows
	group, threads int // threads of a row, and of a block
	blocks, splits int // of rows; splits is 0 where rows are not split
	chunk          int // elements of a split
}

// planRows chooses a kernel for rows whose elements lie side by side: one that keeps a row in the registers of a few
// threads or of a block, or those that split it. units says that rows can be moved 16 bytes at a time, and threads is
// how many a block of rowsUnits32 may have.
func planRows(d dtype.DType, rows, n int, units bool, threads, multiprocessors int) rowPlan {
	most := 32 // elements of a thread
	switch {
	case !units:
		most, threads = 8, 1024
	case d == dtype.Float64:
		most = 16
	}
	p := rowPlan{threads: 256}
	switch {
	case n > most*threads || rows*2 <= multiprocessors && n >= 16384:
		p.kernel = rowsPart
		p.splits = max(1, min(ceilDiv(multiprocessors*16, rows), n/4096))
		p.chunk = ceilDiv(ceilDiv(n, p.splits), 16) * 16 // so that splits are aligned as rows are
		p.splits = ceilDiv(n, p.chunk)
		p.blocks = rows * p.splits
		return p
	case n <= 8*32:
		p.kernel, p.group = rowsUnits8, powerAbove(ceilDiv(n, 8))
	case n <= most*32:
		p.kernel, p.threads, p.group = rowsUnits32, 128, 32
	default:
		p.kernel, p.threads = rowsUnits32, ceilDiv(ceilDiv(n, most), 32)*32
		p.group = p.threads
	}
	if !units {
		p.kernel = rowsElements8
	}
	p.blocks = ceilDiv(rows, p.threads/p.group)
	return p
}
