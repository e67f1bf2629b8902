package verify

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
)

// compareFinal compares the allocator's segments and blocks with the recorded final state.
func (v *verifier) compareFinal() {
	v.alloc.Observe(nil)
	got := v.alloc.Snapshot()
	i := 0
	recorded := v.rec.s.SegmentsOf(v.rec.device)
	for k := range recorded {
		want := &recorded[k]
		v.verdict.Blocks += len(want.Blocks)
		for i < len(got) && got[i].Ptr < want.Ptr {
			v.differ(-1, fmt.Sprintf("the allocator has a segment of %d bytes at %#x that was not recorded",
				got[i].TotalSize, got[i].Ptr))
			i++
		}
		if i == len(got) || got[i].Ptr != want.Ptr {
			v.differ(-1, fmt.Sprintf("recorded: a segment of %d bytes at %#x; the allocator has none there",
				want.TotalSize, want.Ptr))
			continue
		}
		if what := v.compareSegment(want, &got[i]); what != "" {
			v.differ(-1, fmt.Sprintf("segment at %#x: %s", want.Ptr, what))
		}
		i++
	}
	for ; i < len(got); i++ {
		v.differ(-1, fmt.Sprintf("the allocator has a segment of %d bytes at %#x that was not recorded",
			got[i].TotalSize, got[i].Ptr))
	}
}

// compareSegment counts the equal blocks and describes the first difference.
func (v *verifier) compareSegment(want *snapshot.Segment, got *mem.SegmentInfo) string {
	first := ""
	differ := func(format string, args ...any) {
		if first == "" {
			first = fmt.Sprintf(format, args...)
		}
	}
	compare := func(what string, want, got any) {
		if want != got {
			differ("recorded %s %v; the allocator has %v", what, want, got)
		}
	}
	compare("stream", want.Stream, v.t.Streams[got.Stream])
	compare("pool", want.Pool, got.Pool)
	compare("large", want.Large, got.Large)
	compare("expandable", want.Expandable, got.Expandable)
	compare("total size", want.TotalSize, got.TotalSize)
	compare("allocated size", want.AllocatedSize, got.AllocatedSize)
	compare("active size", want.ActiveSize, got.ActiveSize)
	compare("requested size", want.RequestedSize, got.RequestedSize)
	same := first == ""
	for i := range want.Blocks {
		w := &want.Blocks[i]
		wanted := mem.BlockInfo{Ptr: w.Ptr, Size: w.Size, RequestedSize: w.RequestedSize, State: w.State}
		if i < len(got.Blocks) {
			wanted.GCCount = got.Blocks[i].GCCount // files do not contain it
		}
		switch {
		case i >= len(got.Blocks):
			differ("recorded %d blocks; the allocator has %d", len(want.Blocks), len(got.Blocks))
		case got.Blocks[i] != wanted:
			differ("recorded block %+v; the allocator has %+v", wanted, got.Blocks[i])
		case same:
			v.verdict.BlocksMatched++
		}
	}
	if len(got.Blocks) > len(want.Blocks) {
		differ("recorded %d blocks; the allocator has %d", len(want.Blocks), len(got.Blocks))
	}
	return first
}
