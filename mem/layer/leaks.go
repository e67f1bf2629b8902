package layer

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

// A LiveBlock is a live block, as a LeakTracker knows it.
type LiveBlock struct {
	Block     mem.Block
	Requested int64           // requested bytes
	Stream    driver.StreamID // of its allocation
	Number    uint64          // number of the tracker's allocation, from 1: smaller is older
	Site      []runtime.Frame // the call stack, innermost first; empty if it was not recorded
}

// A LeakSite describes the live blocks that one call stack allocated.
type LeakSite struct {
	Frames  []runtime.Frame // innermost first; empty for all blocks whose stacks were not recorded
	Count   int             // blocks
	Bytes   int64
	Streams []driver.StreamID // of their allocations, ascending
	Oldest  LiveBlock
}

// Leaks describes all live blocks, grouped by call stack, most bytes first. When a program has finished its work, they
// are its leaks.
type Leaks struct {
	Count int // blocks
	Bytes int64
	Sites []LeakSite

	unrecorded string // why stacks are missing
}

// Live returns the live blocks, oldest first. Blocks that other goroutines allocate, free or move during the call may
// be missing.
func (t *LeakTracker) Live() []LiveBlock {
	known := t.live()
	out := make([]LiveBlock, len(known))
	for i, tb := range known {
		out[i] = t.describe(tb)
	}
	return out
}

// Leaks returns the live blocks grouped by the call stack that allocated them. Blocks that other goroutines allocate,
// free or move during the call may be missing.
func (t *LeakTracker) Leaks() Leaks {
	out := Leaks{unrecorded: t.unrecorded()}
	index := map[siteID]int{}
	for _, tb := range t.live() {
		i, ok := index[tb.site]
		if !ok {
			i = len(out.Sites)
			index[tb.site] = i
			oldest := t.describe(tb)
			out.Sites = append(out.Sites, LeakSite{Frames: oldest.Site, Oldest: oldest})
		}
		site := &out.Sites[i]
		site.Count++
		site.Bytes += tb.block.Size
		if at, seen := slices.BinarySearch(site.Streams, tb.stream); !seen {
			site.Streams = slices.Insert(site.Streams, at, tb.stream)
		}
		out.Count++
		out.Bytes += tb.block.Size
	}
	slices.SortStableFunc(out.Sites, func(a, b LeakSite) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Oldest.Number, b.Oldest.Number))
	})
	return out
}

// live returns the live entries, oldest first.
func (t *LeakTracker) live() []trackedBlock {
	var out []trackedBlock
	t.blocks.Each(func(_ driver.Pointer, tb trackedBlock) {
		if !tb.freed {
			out = append(out, tb)
		}
	})
	slices.SortFunc(out, func(a, b trackedBlock) int { return cmp.Compare(a.number, b.number) })
	return out
}

func (t *LeakTracker) describe(tb trackedBlock) LiveBlock {
	return LiveBlock{
		Block: tb.block, Requested: tb.requested, Stream: tb.stream, Number: tb.number,
		Site: t.sites.frames(tb.site),
	}
}

// String returns the report as text: a line of totals, then each call stack with its blocks.
func (l Leaks) String() string {
	if l.Count == 0 {
		return "no live blocks\n"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s allocated: %s\n", blocks(l.Count), bytesize.Format(l.Bytes))
	for _, s := range l.Sites {
		streams := "stream"
		if len(s.Streams) > 1 {
			streams = "streams"
		}
		for i, id := range s.Streams {
			sep := ", "
			if i == 0 {
				sep = " "
			}
			streams += fmt.Sprintf("%s%d", sep, id)
		}
		fmt.Fprintf(&text, "\n%s, %s, %s; the oldest is number %d: %d bytes asked for, %d at %#x\n%s",
			bytesize.Format(s.Bytes), blocks(s.Count), streams, s.Oldest.Number, s.Oldest.Requested,
			s.Oldest.Block.Size, uint64(s.Oldest.Block.Ptr), framesText(s.Frames, l.unrecorded))
	}
	return text.String()
}

func blocks(n int) string {
	if n == 1 {
		return "1 block"
	}
	return fmt.Sprintf("%d blocks", n)
}

// unrecorded returns a text about the option because of which not all stacks are recorded, or "".
func (t *LeakTracker) unrecorded() string {
	switch {
	case t.opts.Depth == 0:
		return ": layer.LeakTrackerOptions.Depth is negative; 0 records 16 calls"
	case t.opts.Every > 1:
		return fmt.Sprintf(": layer.LeakTrackerOptions.Every is %d; 1 records each", t.opts.Every)
	}
	return ""
}

// stack returns a stack as lines that each end in a newline.
func (t *LeakTracker) stack(id siteID) string { return framesText(t.sites.frames(id), t.unrecorded()) }

func framesText(frames []runtime.Frame, unrecorded string) string {
	if len(frames) == 0 {
		return "    (the call stack was not recorded" + unrecorded + ")\n"
	}
	var text strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&text, "    %s\n        %s:%d\n", f.Function, f.File, f.Line)
	}
	return text.String()
}
