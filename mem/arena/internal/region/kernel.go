package region

import (
	_ "embed"
	"encoding/binary"
	"errors"

	"github.com/ashlar-go/ashlar/driver"
)

//go:generate ./build.sh

// movePTX is compiled from move.cu, which explains the algorithm. It needs devices of compute capability 7.0 (Volta)
// and later, whose memory model has acquire and release.
//
// The device copy of an H200 copies 8 GiB to another address at 2.11 TB/s (of contents: each byte is read and written).
// The kernel moves one run of 8 GiB at 1.84 TB/s by 512 bytes, 1.82 by 64 KiB, 1.87 by 1 MiB, 2.02 by 32 MiB, and 2.00
// by its own length. So all moves use the kernel. It moves 8 GiB in 1,000 runs at 1.84 TB/s, in 10,000 at 1.89, in
// 100,000 at 1.82. Checking and preparing 100,000 runs takes the caller 0.7 ms, sometimes 1.2, which limits short runs.
//
// Measure with: go test -tags gpu -run '^$' -bench GPUMove ./mem/arena/internal/region
//
//go:embed move.ptx
var movePTX []byte

// Constants of move.cu.
const (
	chunkGrains = 64
	threads     = 256
	ringFlags   = 4096
	rowBytes    = 16
	placeBytes  = 8
)

// The layout of the kernel's area, in bytes from its start: the ticket, the flags, and two tables. A table is the rows
// and the places of the chunks of one launch.
const (
	flagsAt  = 256
	tablesAt = flagsAt + 4*ringFlags
)

// Up to fewRows rows are searched by each moving block, which takes less time than a launch of indexRuns.
const fewRows = 8

// A launch takes up to mostRows rows. A list of more than soonRows rows uses several launches: while the device moves one
// part, the host prepares the next, and another stream copies its table and runs indexRuns. The first part is short, so
// that the device begins early. Each other part has the rows that can be prepared while the device moves the part
// before, but at least twice as many as that part, because a launch costs time, too.
const (
	mostRows  = 64 << 10
	soonRows  = 4096
	soonBytes = 12 << 10 // bytes moved in the time in which a slow host prepares a row
)

// A kernel is the compiled code with its memory on the device.
type kernel struct {
	module     driver.Module // nil once closed
	index      driver.Function
	move       driver.Function
	area       driver.Pointer // 0 if there is none
	ahead      driver.Stream  // prepares the tables of long lists; nil if there is none
	rows       int            // maximum number of runs of a launch
	soon       int            // maximum number of runs of the first launch of a long list
	tableBytes int64          // bytes of a table in the area
	zeroed     bool           // the ticket and the flags are zeroed
	launches   uint64         // number of launches: the next one uses table launches % 2
	used       driver.Mark    // of a long list: behind the launch before the last one
	chunks     uint64         // number of chunks moved by all launches: the next value of the ticket
	table      []byte         // the rows of the next launch
}

// loadKernel determines the kind of the device's kernels, and loads the compiled one.
func (r *Region) loadKernel() error {
	kernels := r.dev.Kernels()
	if c := r.dev.Info().Compute; kernels == nil || 0 < c && c < 70 || r.size >= Grain<<32 {
		return nil
	}
	if r.foreign && r.dev.Info().Compute > 0 {
		return nil
	}
	module, err := kernels.Load(movePTX)
	if errors.Is(err, driver.ErrUnsupported) {
		r.goKernels = true
		return nil
	}
	if err != nil {
		return err
	}
	k := &kernel{module: module, soon: soonRows}
	r.kernel = k
	if k.index, err = module.Function("indexRuns"); err != nil {
		return err
	}
	if k.move, err = module.Function("moveRuns"); err != nil {
		return err
	}
	k.rows, k.tableBytes = tableFor(r.size)
	if k.area, err = r.dev.Alloc(Beside(r.size)); err != nil {
		return err
	}
	k.ahead, err = r.dev.NewStream(driver.StreamOptions{Priority: -1})
	return err
}

// tableFor returns the maximum number of runs of a launch in a region of size bytes, and the bytes of its table.
func tableFor(size int64) (rows int, bytes int64) {
	grains := size / Grain
	rows = int(min(grains, max(grains/16, 8<<10), mostRows))
	return rows, roundUp(int64(rows)*rowBytes+(grains/chunkGrains+2)*placeBytes, rowBytes)
}

// Beside returns the maximum number of bytes that Open allocates in addition to a region of size bytes: the kernel's
// area.
func Beside(size int64) int64 {
	_, bytes := tableFor(size)
	return tablesAt + 2*bytes
}

func (k *kernel) close(dev driver.Device) error {
	var errs [3]error
	if k.ahead != nil {
		if errs[2] = k.ahead.Close(); errs[2] == nil {
			k.ahead = nil
		}
	}
	if k.area != 0 {
		if errs[0] = dev.Free(k.area); errs[0] == nil { // which waits for the kernel
			k.area = 0
		}
	}
	if k.module != nil && errs[0] == nil {
		if errs[1] = k.module.Close(); errs[1] == nil {
			k.module = nil
		}
	}
	return errors.Join(errs[:]...)
}

// launch moves runs with the compiled kernel. A launch that fails has moved nothing.
func (r *Region) launch(s driver.Stream, moves []Move) (n int, err error) {
	if len(moves) == 0 {
		return 0, nil
	}
	if err := r.enter(s); err != nil {
		return 0, failed(moves[0], err)
	}
	defer r.leave(s)
	k := r.kernel
	if !k.zeroed {
		if err := s.Fill(k.area, 0, tablesAt); err != nil {
			return 0, failed(moves[0], err)
		}
		k.zeroed = true
	}
	most, tables := k.rows, s
	if len(moves) > k.soon {
		if k.used, err = s.Mark(); err != nil {
			return 0, failed(moves[0], err)
		}
		most, tables = min(k.rows, k.soon), k.ahead
		defer r.leave(tables)
	}
	for n < len(moves) {
		end, grains := r.pack(moves, n, most)
		if err := r.launchPart(s, tables, moves[n:end], grains); err != nil {
			return n, failed(moves[n], err)
		}
		n, most = end, min(k.rows, max(2*most, int(grains)/(soonBytes/Grain)))
	}
	return n, nil
}

// launchPart launches the kernels for the runs of a packed table: those that move on s, and the other one on the stream
// tables, which may be another one. It declares the sources and destinations as one range each; devices with compiled
// kernels ignore the declaration.
func (r *Region) launchPart(s, tables driver.Stream, moves []Move, grains uint32) error {
	k, n := r.kernel, len(r.kernel.table)/rowBytes
	chunks := (int64(grains) + chunkGrains - 1) / chunkGrains
	rows := k.area + tablesAt + driver.Pointer(k.launches%2)*driver.Pointer(k.tableBytes)
	places := rows + driver.Pointer(k.rows)*rowBytes
	table := driver.Range{Ptr: rows, Size: int64(n) * rowBytes}
	index := driver.Range{Ptr: places, Size: (chunks + 1) * placeBytes}
	if tables != s { // wait for the launch before the last one, which used this table
		if err := tables.WaitFor(s, k.used); err != nil {
			return err
		}
	}
	if err := tables.CopyIn(rows, k.table); err != nil {
		return err
	}
	if n <= fewRows {
		places = 0
	} else if err := r.dev.Kernels().Launch(tables, driver.Kernel{
		Name: "region.index", Reads: []driver.Range{table}, Writes: []driver.Range{index},
		Code: k.index, Grid: [3]uint32{uint32(chunks/threads + 1)}, Block: [3]uint32{threads},
		Args: []driver.Arg{
			driver.PointerArg(rows), driver.Uint32Arg(uint32(n)), driver.Uint32Arg(grains), driver.PointerArg(places),
		},
	}); err != nil {
		return err
	}
	if tables != s {
		if err := k.passTable(s, tables); err != nil {
			return err
		}
	}
	first, last := moves[0], moves[len(moves)-1]
	from := driver.Range{Ptr: first.From, Size: int64(last.From-first.From) + last.Size}
	to := driver.Range{Ptr: first.To, Size: int64(last.To-first.To) + last.Size}
	state := driver.Range{Ptr: k.area, Size: tablesAt}
	if err := r.dev.Kernels().Launch(s, driver.Kernel{
		Name: "region.move", Reads: []driver.Range{from, table, index, state}, Writes: []driver.Range{to, state},
		Code: k.move, Grid: [3]uint32{uint32(chunks)}, Block: [3]uint32{threads},
		Args: []driver.Arg{
			driver.PointerArg(r.base), driver.PointerArg(rows), driver.Uint32Arg(uint32(n)), driver.Uint32Arg(grains),
			driver.PointerArg(places), driver.PointerArg(k.area + flagsAt), driver.PointerArg(k.area),
			driver.Uint64Arg(k.chunks),
		},
	}); err != nil {
		return err
	}
	k.chunks += uint64(chunks)
	k.launches++
	return nil
}

// passTable makes s wait for the table that was queued on another stream.
func (k *kernel) passTable(s, tables driver.Stream) error {
	ready, err := tables.Mark()
	if err != nil {
		return err
	}
	if k.used, err = s.Mark(); err != nil {
		return err
	}
	return s.WaitFor(tables, ready)
}

// pack writes moves from index n on to the table, up to the given number of rows, and panics if one is invalid. A row has
// the index of the run's first grain among all, its destination and source in grains from the base, and the number of
// grains. Adjacent runs are joined. It returns the index of the next move and the number of grains.
func (r *Region) pack(moves []Move, n, rows int) (next int, grains uint32) {
	k, size := r.kernel, r.size
	if need := min(k.rows, len(moves)) * rowBytes; cap(k.table) < need {
		k.table = make([]byte, need)
	}
	table, used := k.table[:min(rows, len(moves)-n)*rowBytes], 0
	var ends offsets
	if n > 0 {
		ends = r.offsets(moves[n-1]).ends()
	}
	for next = n; next < len(moves); next++ {
		m := r.offsets(moves[next])
		if !m.follows(ends, size) {
			panic(r.invalid(moves, next))
		}
		count := m.size / Grain
		if used > 0 && m.to == ends.to && m.from == ends.from {
			last := table[used-4 : used]
			binary.LittleEndian.PutUint32(last, binary.LittleEndian.Uint32(last)+uint32(count))
		} else {
			if used == len(table) {
				break
			}
			row := table[used : used+rowBytes : used+rowBytes]
			binary.LittleEndian.PutUint64(row[0:], uint64(grains)|m.to/Grain<<32)
			binary.LittleEndian.PutUint64(row[8:], m.from/Grain|count<<32)
			used += rowBytes
		}
		ends = m.ends()
		grains += uint32(count)
	}
	k.table = table[:used]
	return next, grains
}
