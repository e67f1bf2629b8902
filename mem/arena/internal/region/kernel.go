package region

import (
	_ "embed"
	"encoding/binary"
	"errors"

	"github.com/ashlar-go/ashlar/driver"
)

//go:generate ./build.sh

// movePTX is move.cu, which says how runs move. It needs devices of compute capability 7.0 (Volta) and later, whose memory
// model has acquire and release.
//
// On an H200, whose own copy of 8 GiB to elsewhere does 2.13 TB/s (of contents: each byte is read and written), one run of
// 8 GiB moves at 1.83 TB/s by 512 bytes, 1.82 by 64 KiB, 1.86 by 1 MiB, 2.01 by 32 MiB and by its own length. So nothing is
// left to the device's copy. 100,000 runs of 83 KiB each move at 1.63 TB/s, and preparing them takes the caller 0.55 ms.
//
// Measure with: go test -tags gpu -run '^$' -bench GPUMove ./mem/arena/internal/region
//
//go:embed move.ptx
var movePTX []byte

// What move.cu has as constants.
const (
	chunkGrains = 64
	threads     = 256
	ringFlags   = 4096
	rowBytes    = 16
)

// The kernel's area, in bytes from its start: the ticket, the flags, the rows.
const (
	flagsAt  = 256
	rowsAt   = flagsAt + 4*ringFlags
	areaSize = 256 << 10 // at most; a longer list takes several launches
)

// A kernel is the compiled code that moves, and what it needs on the device.
type kernel struct {
	module   driver.Module // nil once closed
	function driver.Function
	area     driver.Pointer // 0 if there is none
	rows     int            // as many runs go in one launch
	zeroed   bool           // the ticket and the flags are
	chunks   uint64         // that all launches have moved: what the ticket will be
	table    []byte         // the rows of the launch that is being prepared
}

// loadKernel finds out what kernels the device runs, and prepares the compiled one.
func (r *Region) loadKernel() error {
	kernels := r.dev.Kernels()
	if c := r.dev.Info().Compute; kernels == nil || 0 < c && c < 70 || r.size >= Grain<<32 {
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
	r.kernel = &kernel{module: module}
	if r.kernel.function, err = module.Function("moveRuns"); err != nil {
		return err
	}
	size := min(areaSize, rowsAt+r.size/Grain*rowBytes)
	r.kernel.rows = int((size - rowsAt) / rowBytes)
	r.kernel.area, err = r.dev.Alloc(size)
	return err
}

func (k *kernel) close(dev driver.Device) error {
	var errs [2]error
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

// launch moves runs by the compiled kernel. A launch that fails has moved nothing.
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
		if err := s.Fill(k.area, 0, rowsAt); err != nil {
			return 0, failed(moves[0], err)
		}
		k.zeroed = true
	}
	most := k.rows
	if len(moves) > most {
		most = (most + 7) / 8 // the device starts soon, and works while the rest is packed
	}
	for n < len(moves) {
		packed, grains := k.pack(r.base, moves[n:], most)
		most = k.rows
		if err := r.launchPacked(s, moves[n:n+packed], grains); err != nil {
			return n, failed(moves[n], err)
		}
		n += packed
	}
	return n, nil
}

// launchPacked launches the kernel for the runs that are in the table. Where they come from and go to is declared as a
// whole, with what lies in between: devices that run compiled code look at none of it.
func (r *Region) launchPacked(s driver.Stream, moves []Move, grains uint32) error {
	k := r.kernel
	first, last := moves[0], moves[len(moves)-1]
	reads := driver.Range{Ptr: first.From, Size: int64(last.From-first.From) + last.Size}
	writes := driver.Range{Ptr: first.To, Size: int64(last.To-first.To) + last.Size}
	own := driver.Range{Ptr: k.area, Size: rowsAt + int64(len(k.table))}
	rows := k.area + rowsAt
	if err := s.CopyIn(rows, k.table); err != nil {
		return err
	}
	chunks := (uint64(grains) + chunkGrains - 1) / chunkGrains
	launch := driver.Kernel{
		Name: "region.move", Reads: []driver.Range{reads, own}, Writes: []driver.Range{writes, own},
		Code: k.function, Grid: [3]uint32{uint32(chunks)}, Block: [3]uint32{threads},
		Args: []driver.Arg{
			driver.PointerArg(r.base), driver.PointerArg(rows), driver.Uint32Arg(uint32(len(k.table) / rowBytes)),
			driver.Uint32Arg(grains), driver.PointerArg(k.area + flagsAt), driver.PointerArg(k.area), driver.Uint64Arg(k.chunks),
		},
	}
	if err := r.dev.Kernels().Launch(s, launch); err != nil {
		return err
	}
	k.chunks += chunks
	return nil
}

// pack writes as many moves as go into so many rows to the table: the first of a run's grains among all, where that goes
// and comes from in grains from the base, and their number. Runs that follow each other at both ends are one. It returns
// the number of moves and that of grains.
func (k *kernel) pack(base driver.Pointer, moves []Move, rows int) (n int, grains uint32) {
	if need := min(k.rows, len(moves)) * rowBytes; cap(k.table) < need {
		k.table = make([]byte, need)
	}
	table, used := k.table[:cap(k.table)], 0
	var to, from driver.Pointer // behind the last run
	for _, m := range moves {
		size := uint32(m.Size / Grain)
		if used > 0 && m.To == to && m.From == from {
			n := table[used-4 : used]
			binary.LittleEndian.PutUint32(n, binary.LittleEndian.Uint32(n)+size)
		} else {
			if used == rows*rowBytes {
				break
			}
			row := table[used : used+rowBytes : used+rowBytes]
			binary.LittleEndian.PutUint32(row[0:], grains)
			binary.LittleEndian.PutUint32(row[4:], uint32((m.To-base)/Grain))
			binary.LittleEndian.PutUint32(row[8:], uint32((m.From-base)/Grain))
			binary.LittleEndian.PutUint32(row[12:], size)
			used += rowBytes
		}
		to, from = m.To+driver.Pointer(m.Size), m.From+driver.Pointer(m.Size)
		grains += size
		n++
	}
	k.table = table[:used]
	return n, grains
}
