package bfc

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// A BinInfo describes the blocks whose sizes belong to one bin, live or free. Sizes are bytes.
type BinInfo struct {
	Size           int64 // of the smallest blocks; the next bin's is twice that, the last has all larger blocks
	Blocks         int
	Bytes          int64
	Live           int // blocks
	LiveBytes      int64
	RequestedBytes int64 // of the live blocks
}

// Bins returns the 21 bins, smallest blocks first. Its time grows with the number of blocks.
func (a *Allocator) Bins() []BinInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.binInfos()
}

func (a *Allocator) binInfos() []BinInfo {
	bins := make([]BinInfo, numBins)
	for i := range bins {
		bins[i].Size = binSize(i)
	}
	for i := range a.blocks {
		r := &a.blocks[i]
		if r.state == none {
			continue
		}
		b := &bins[binOf(r.size)]
		b.Blocks++
		b.Bytes += r.size
		if r.state == live {
			b.Live++
			b.LiveBytes += r.size
			b.RequestedBytes += r.requested
		}
	}
	return bins
}

const mapWidth = 100

// Map draws all segments one after the other as 100 characters: * for requested memory, x for memory that rounding and
// unsplit ends waste, _ for free memory. A character stands for a hundredth of the memory. If several apply, the last
// block counts, and within a block its requested memory. The map is empty if there are no segments.
func (a *Allocator) Map() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.occupancy()
}

func (a *Allocator) occupancy() string {
	total := a.stats.ReservedBytes.All.Current
	if total == 0 {
		return ""
	}
	line := []byte(strings.Repeat("_", mapWidth))
	cell := func(at int64) int64 { return at * mapWidth / total } // total is below 1<<57
	paint := func(from, size int64, c byte) {
		for i := cell(from); size > 0 && i <= cell(from+size-1); i++ {
			line[i] = c
		}
	}
	var at int64
	for _, s := range a.segments {
		for n := s.first; n != 0; n = a.blocks[n].next {
			r := &a.blocks[n]
			if r.state == live {
				paint(at+r.requested, r.size-r.requested, 'x')
				paint(at, r.requested, '*')
			}
			at += r.size
		}
	}
	return string(line)
}

// WriteDump writes the text that TensorFlow logs when memory runs out: the bins, the bin of the last failed request
// with the free blocks in it, every block by segment, the live blocks by size, the figures and the map. The error is
// that of w. The text is made under the allocator's lock, and written without it.
func (a *Allocator) WriteDump(w io.Writer) error {
	var text strings.Builder
	a.mu.Lock()
	a.dump(&text)
	a.mu.Unlock()
	b := bufio.NewWriter(w)
	_, _ = b.WriteString(text.String()) // Flush returns the error
	return b.Flush()
}

func (a *Allocator) dump(w io.Writer) {
	fmt.Fprintf(w, "memory of %s\n", a.cfg.Name)
	for _, b := range a.binInfos() {
		fmt.Fprintf(w, "bin %s: blocks %d, %s; live %d, %s, of which %s asked for\n", bytesize.Exact(b.Size), b.Blocks,
			bytesize.Format(b.Bytes), b.Live, bytesize.Format(b.LiveBytes), bytesize.Format(b.RequestedBytes))
	}
	if a.refused > 0 {
		bin := binOf(a.refused)
		fmt.Fprintf(w, "refused last: %d bytes, bin %s\n", a.refused, bytesize.Exact(binSize(bin)))
		for n := a.bins.lowerBound(a.blocks, binSize(bin), 0); n != 0; n = a.bins.lowerBound(a.blocks, a.blocks[n].size,
			a.blocks[n].ptr+1) {
			if binOf(a.blocks[n].size) > bin {
				break
			}
			a.dumpBlock(w, &a.blocks[n])
		}
	}
	sizes := map[int64]int64{}
	for _, s := range a.segments {
		fmt.Fprintf(w, "segment %#x, %d bytes\n", uint64(s.ptr), s.size)
		for n := s.first; n != 0; n = a.blocks[n].next {
			r := &a.blocks[n]
			a.dumpBlock(w, r)
			if r.state == live {
				sizes[r.size]++
			}
		}
	}
	fmt.Fprintln(w, "live blocks by size")
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		fmt.Fprintf(w, "  %d of %d bytes: %s\n", sizes[size], size, bytesize.Format(size*sizes[size]))
	}
	used, reserved := a.stats.Usage(), a.stats.ReservedBytes.All
	fmt.Fprintf(w, "blocks allocated %d, the largest %d bytes\n", used.Blocks.Allocated, used.Largest)
	fmt.Fprintf(w, "live %d bytes, at most %d\n", used.Bytes.Current, used.Bytes.Peak)
	fmt.Fprintf(w, "segments %d bytes, at most %d; the limit %d leaves %d; the next is of %d\n",
		reserved.Current, reserved.Peak, a.cfg.Limit, a.cfg.Limit-reserved.Current, a.nextSegment)
	fmt.Fprintf(w, "largest free block %d bytes, fragmentation %.4f\n", a.largestFree(), a.fragmentation())
	if reserved.Current > 0 {
		fmt.Fprintf(w, "map %s\n", a.occupancy())
	}
}

func (a *Allocator) dumpBlock(w io.Writer, r *block) {
	if r.state == live {
		fmt.Fprintf(w, "  live %#x, %d bytes, asked for %d", uint64(r.ptr), r.size, r.requested)
	} else {
		fmt.Fprintf(w, "  free %#x, %d bytes", uint64(r.ptr), r.size)
		if r.freedAt > 0 {
			fmt.Fprintf(w, ", freed at %d", r.freedAt)
		}
	}
	if r.next != 0 {
		fmt.Fprintf(w, ", next %#x", uint64(r.ptr+driver.Pointer(r.size)))
	}
	fmt.Fprintln(w)
}
