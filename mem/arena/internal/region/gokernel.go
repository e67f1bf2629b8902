package region

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// On devices whose kernels are Go functions a launch saves many small copies. A long run gains nothing, and the
// simulator, whose copies of memory that was filled or never written take no room, would have to write it out.
const (
	goRun    = 4 << 20   // bytes of the longest run that a Go kernel moves
	goRuns   = 1024      // of one launch: the simulator looks through what a kernel declares at each access
	goWindow = 256 << 10 // bytes in hand at a time
)

// launchGo moves short runs by kernels and long ones by copies.
func (r *Region) launchGo(s driver.Stream, moves []Move) (n int, err error) {
	for n < len(moves) {
		if moves[n].Size > goRun {
			if err := r.slide(s, moves[n]); err != nil {
				return n, failed(moves[n], err)
			}
			n++
			continue
		}
		end := n + 1
		for end < len(moves) && end-n < goRuns && moves[end].Size <= goRun {
			end++
		}
		if err := r.dev.Kernels().Launch(s, goKernel(moves[n:end])); err != nil {
			return n, failed(moves[n], err)
		}
		n = end
	}
	return n, nil
}

// goKernel is the moving of runs, one after the other, each from its start on. A window is in hand whole before any of it
// is written, and what that overwrites was moved before.
func goKernel(moves []Move) driver.Kernel {
	moves = slices.Clone(moves)
	k := driver.Kernel{Name: "region.move"}
	k.Reads, k.Writes = ranges(moves)
	k.Func = func(memory driver.Memory) error {
		window := make([]byte, goWindow)
		for _, m := range moves {
			for done := int64(0); done < m.Size; done += goWindow {
				at, piece := driver.Pointer(done), window[:min(goWindow, m.Size-done)]
				if err := memory.Load(piece, m.From+at); err != nil {
					return err
				}
				if err := memory.Store(m.To+at, piece); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return k
}

// ranges are where moves read and write, neighbours joined.
func ranges(moves []Move) (reads, writes []driver.Range) {
	join := func(to []driver.Range, p driver.Pointer, size int64) []driver.Range {
		if n := len(to); n > 0 && to[n-1].Ptr+driver.Pointer(to[n-1].Size) == p {
			to[n-1].Size += size
			return to
		}
		return append(to, driver.Range{Ptr: p, Size: size})
	}
	for _, m := range moves {
		reads, writes = join(reads, m.From, m.Size), join(writes, m.To, m.Size)
	}
	return reads, writes
}
