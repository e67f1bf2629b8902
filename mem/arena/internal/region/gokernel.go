package region

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// On devices with Go kernels, one launch replaces many small copies. For a long run this gains nothing. It would also
// cost memory on the simulator, which stores filled or unwritten memory in compact form as long as it is only copied.
const (
	goRun    = 4 << 20   // length of the longest run that a Go kernel moves, in bytes
	goRuns   = 1024      // maximum for one launch: the simulator searches them at each access
	goWindow = 256 << 10 // bytes buffered at a time
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

// goKernel returns a kernel that moves runs one after another, each from its start. It reads a whole window before it
// writes it; the bytes that it overwrites have been moved before.
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

// ranges returns the ranges that moves read and write, with neighbours joined.
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
