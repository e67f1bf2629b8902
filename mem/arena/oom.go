package arena

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// A shortage is a request that found no room.
type shortage struct {
	stream          driver.Stream
	requested, size int64
	limited         bool  // the limit refused it
	noRetry         bool  // the request forbids compaction
	tentative       bool  // the failure is not counted or explained
	cause           error // why no memory was mapped or no blocks were moved; may be nil
}

// refuse returns the error for a shortage.
func (a *Arena) refuse(short shortage) error {
	if short.tentative {
		return fmt.Errorf("arena: no room for %s: %w", mem.FormatSize(short.requested), mem.ErrNoMemory)
	}
	return a.outOfMemory(short)
}

// outOfMemory collects the facts that explain a shortage.
func (a *Arena) outOfMemory(short shortage) *mem.OutOfMemory {
	a.stats.NumOOMs++
	info := a.dev.Info()
	n, free, largest := a.freeMemory()
	e := &mem.OutOfMemory{
		Requested: short.requested, Rounded: short.size, Segment: short.size,
		Device: info.Ordinal, DeviceName: info.Name, Total: info.TotalMemory,
		Allowed:   a.Size(),
		Allocated: a.stats.AllocatedBytes.All.Current, Reserved: a.stats.ReservedBytes.All.Current,
		Stream: short.stream.ID(), LargestFree: largest,
		Cause: short.cause,
	}
	if free, total, err := a.dev.Available(); err == nil {
		e.Free, e.Total = free, total
	}
	if a.limit > 0 {
		e.Allowed = min(a.limit, e.Allowed)
	}
	if needed := e.Allocated + short.size; short.limited || (a.sizeSet || a.parent != nil) && needed > a.Size() {
		e.Needed = needed
	}
	if n > 0 {
		e.Cached = []mem.CachedMemory{{Stream: e.Stream, Bytes: free, Blocks: n, Largest: largest}}
	}
	if n := len(a.blocks) - len(a.unused); n > 0 {
		e.Stranded = free
		a.describePinning(e, n)
	}
	a.describeRemedies(e, short, free)
	return e
}

// freeMemory returns the number of holes with memory, their total bytes and the largest.
func (a *Arena) freeMemory() (n int, total, largest int64) {
	end := a.hi
	if a.paged() {
		end = a.backed
	}
	for s := range a.holes.All() {
		if size := min(s.End(), end) - s.At; size > 0 {
			n, total, largest = n+1, total+size, max(largest, size)
		}
	}
	return n, total, largest
}

// describePinning finds the blocks that cannot be moved and separate the most free memory.
func (a *Arena) describePinning(e *mem.OutOfMemory, n int) {
	for i := range a.blocks {
		r := &a.blocks[i]
		if r.state == none || r.holder != nil && !r.refused && a.pins == 0 {
			continue
		}
		var beside int64
		if s, _, ok := a.holes.Find(r.at - 1); ok && r.at > a.lo {
			beside += s.Size
		}
		if s, _, ok := a.holes.Find(r.at + r.size); ok {
			beside += s.Size
		}
		if beside > 0 {
			e.Pinning = append(e.Pinning, mem.PinningBlock{
				Ptr: a.pointer(r.at), Size: r.size, Requested: r.requested,
				Segment: a.pointer(a.lo), SegmentSize: a.Size(), Stranded: beside, Live: n,
			})
		}
	}
	e.Pinning = stats.MostStranded(e.Pinning)
}

// describeRemedies adds the changes with which the request would have succeeded. bytes is the free memory.
func (a *Arena) describeRemedies(e *mem.OutOfMemory, short shortage, bytes int64) {
	add := func(name, format string, args ...any) {
		e.Remedies = append(e.Remedies, mem.Remedy{Name: name, Reason: fmt.Sprintf(format, args...)})
	}
	hope := func() int64 { return a.plan(func(r *block) bool { return r.holder != nil }).largest }
	if short.limited {
		room := e.LargestFree
		if a.paged() && e.Free >= short.size {
			room = a.holes.Largest()
		}
		if room < short.size && bytes >= short.size && a.pins == 0 {
			room = hope()
		}
		if room >= short.size {
			add("limit="+bytesize.Exact(e.Allocated+short.size), "the limit is %s, and there is room for %s",
				mem.FormatSize(a.limit), mem.FormatSize(room))
		}
		return
	}
	free := mem.FormatSize(bytes)
	fits := bytes >= short.size && e.LargestFree < short.size
	switch {
	case fits && a.cfg.NoCompact:
		add("compact=on", "free memory in pieces comes to %s, for blocks that may be moved", free)
	case fits && short.noRetry:
		add("a request without NoRetry", "free memory in pieces comes to %s, for blocks that may be moved", free)
	case fits && a.pins > 0:
		if n := hope(); n >= short.size {
			add("Hold.Release", "%d holds keep blocks still; moved together they leave a hole of %s", a.pins,
				mem.FormatSize(n))
		}
	case fits && errors.Is(short.cause, driver.ErrCapturing):
		if n := hope(); n >= short.size {
			add("Compact before the capture", "nothing is moved on a stream that captures; blocks moved together "+
				"leave a hole of %s",
				mem.FormatSize(n))
		}
	case fits && len(e.Pinning) > 0:
		add("movable blocks", "free memory in pieces comes to %s; see what pins it", free)
	}
	if a.own() && a.cfg.Page == 0 && e.Free >= short.size {
		add("size="+bytesize.Exact(a.Size()+short.size), "the device has %s outside the arena", mem.FormatSize(e.Free))
	}
}
