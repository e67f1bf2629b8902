package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
)

// A segmentLine is a segment of the final state, as info --json has it. Sizes are bytes.
type segmentLine struct {
	Address     uint64     `json:"address"`
	Size        int64      `json:"size"`
	Allocated   int64      `json:"allocated"`
	Requested   int64      `json:"requested"` // 0 in files from before it was recorded
	Live        int        `json:"live"`      // blocks
	LargestFree int64      `json:"largest_free"`
	Stream      uint64     `json:"stream"`
	Pool        mem.PoolID `json:"pool"`
	Kind        string     `json:"kind"` // "large" or "small"
	Expandable  bool       `json:"expandable"`
}

func segmentOf(seg *snapshot.Segment) segmentLine {
	l := segmentLine{
		Address: uint64(seg.Ptr), Size: seg.TotalSize, Allocated: seg.AllocatedSize, Requested: seg.RequestedSize,
		Stream: seg.Stream, Pool: seg.Pool, Kind: "small", Expandable: seg.Expandable,
	}
	if seg.Large {
		l.Kind = "large"
	}
	for i := range seg.Blocks {
		if b := &seg.Blocks[i]; b.State == mem.Inactive {
			l.LargestFree = max(l.LargestFree, b.Size)
		} else {
			l.Live++
		}
	}
	return l
}

// maxSegments is the maximum number of segments shown.
const maxSegments = 20

// writeSegments writes the segments of a device as a table, the largest first.
func writeSegments(w *page, segments []segmentLine) {
	if len(segments) == 0 {
		return
	}
	sorted := slices.Clone(segments)
	slices.SortFunc(sorted, func(a, b segmentLine) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Address, b.Address))
	})
	shown := sorted[:min(len(sorted), maxSegments)]
	t := table{
		header:   []string{"segment", "size", "allocated", "live\nblocks", "largest\nfree", "stream", "pool", "kind"},
		optional: []int{7, 6, 5, 3}, marked: -1,
	}
	for _, s := range shown {
		kind := s.Kind
		if s.Expandable {
			kind += ", expandable"
		}
		t.rows = append(t.rows, []string{
			fmt.Sprintf("%#x", s.Address), bytesize.Format(s.Size), bytesize.Format(s.Allocated), count(s.Live),
			bytesize.Format(s.LargestFree), fmt.Sprintf("%#x", s.Stream), poolName(s.Pool), kind,
		})
	}
	fmt.Fprintln(w)
	t.write(w)
	if rest := sorted[len(shown):]; len(rest) > 0 {
		var size, allocated int64
		for _, s := range rest {
			size, allocated = size+s.Size, allocated+s.Allocated
		}
		fmt.Fprintf(w, "  and %s more of %s, of which %s is allocated; --json has all\n", count(len(rest)),
			bytesize.Format(size), bytesize.Format(allocated))
	}
}

// poolName is the displayed name of a pool.
func poolName(p mem.PoolID) string {
	if p == (mem.PoolID{}) {
		return "default"
	}
	return "private " + p.String()
}
