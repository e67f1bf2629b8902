package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
)

// streamNumber returns the index of a stream in History.Streams, or the largest number.
func (r *Recording) streamNumber(handle uint64) uint16 {
	n, found := slices.BinarySearch(r.h.Streams, handle)
	if !found {
		return math.MaxUint16
	}
	return uint16(min(n, math.MaxUint16))
}

// poolNumber returns the index of a pool in History.Pools, or 0.
func (r *Recording) poolNumber(id mem.PoolID) uint16 {
	return uint16(max(0, slices.Index(r.h.Pools, id)))
}

// segmentsAt returns the segments at a moment, by address. Pages of an expandable segment that lie side by side are one
// segment.
func (r *Recording) segmentsAt(event int) []segment {
	var list []segment
	for i := range r.segments {
		g := r.segments[i]
		if !g.ActiveAt(event) {
			continue
		}
		if n := len(list); n > 0 && g.Expandable && list[n-1].Expandable && list[n-1].limit == g.Ptr &&
			list[n-1].Stream == g.Stream && list[n-1].Pool == g.Pool {
			last := &list[n-1]
			last.limit, last.Size = g.limit, last.Size+g.Size
			last.Start, last.End = min(last.Start, g.Start), max(last.End, g.End)
			continue
		}
		list = append(list, g)
	}
	return list
}

// blocksByAddress returns the active blocks at a moment, by address.
func (r *Recording) blocksByAddress(event int) []uint32 {
	list := r.ends.active(r.lives, event, nil)
	slices.SortFunc(list, func(a, b uint32) int { return cmp.Compare(r.lives.Ptr(int(a)), r.lives.Ptr(int(b))) })
	return list
}

// statePicture returns the segments and the blocks at a moment.
func (r *Recording) statePicture(event int) *container {
	segments, blocks := r.segmentsAt(event), r.blocksByAddress(event)
	reserved, _ := reservedIn(r.levels, event, event)
	requested := r.h.ActiveBytes(event)
	c := newContainer(map[string]any{
		"event": event, "time": r.timeOf(event), "requested": requested, "reserved": reserved,
		"free": max(0, reserved-requested), "segments": len(segments), "blocks": len(blocks),
	})
	r.addState(c, segments, blocks)
	r.addStateBlocks(c, event, blocks)
	return c
}

// addState adds the arrays of segments.
func (r *Recording) addState(c *container, segments []segment, blocks []uint32) {
	n := len(segments)
	address, size, first := make([]uint64, n), make([]float64, n), make([]uint32, n)
	stream, pool, expandable := make([]uint16, n), make([]uint16, n), make([]uint8, n)
	for i := range segments {
		g := &segments[i]
		address[i], size[i] = uint64(g.Ptr), float64(g.Size)
		stream[i], pool[i], expandable[i] = r.streamNumber(g.Stream), r.poolNumber(g.Pool), uint8(truth(g.Expandable))
		k, _ := slices.BinarySearchFunc(blocks, g.Ptr, func(b uint32, p driver.Pointer) int {
			return cmp.Compare(r.lives.Ptr(int(b)), p)
		})
		first[i] = uint32(k)
	}
	c.add("seg_address", address)
	c.add("seg_size", size)
	c.add("seg_stream", stream)
	c.add("seg_pool", pool)
	c.add("seg_expandable", expandable)
	c.add("seg_first", first)
}

// addStateBlocks adds the arrays of blocks.
func (r *Recording) addStateBlocks(c *container, event int, list []uint32) {
	n := len(list)
	address, size, end, pending := make([]uint64, n), make([]float64, n), make([]uint32, n), make([]uint8, n)
	for i, b := range r.addBlocks(c, list) {
		address[i], size[i] = uint64(b.Ptr), float64(b.Size)
		end[i], pending[i] = uint32(b.End), uint8(truth(int(b.Freed) <= event))
	}
	c.add("address", address)
	c.add("size", size)
	c.add("block", list)
	c.add("end", end)
	c.add("pending", pending)
}

// A segmentText is a segment as JSON.
type segmentText struct {
	Address    string `json:"address"`
	Size       int64  `json:"size"`
	Stream     string `json:"stream"`
	Pool       string `json:"pool"`
	Expandable bool   `json:"expandable"`
	Start      int    `json:"start"`
	End        int    `json:"end"`
}

func textOfSegment(g *segment) *segmentText {
	return &segmentText{
		Address: addressText(g.Ptr), Size: g.Size, Stream: streamText(g.Stream), Pool: g.Pool.String(),
		Expandable: g.Expandable, Start: int(g.Start), End: int(g.End),
	}
}

func addressText(p driver.Pointer) string { return fmt.Sprintf("%#x", uint64(p)) }

func streamText(handle uint64) string { return fmt.Sprintf("%#x", handle) }

// A blockText is a block as JSON.
type blockText struct {
	ID         int          `json:"id"`
	Address    string       `json:"address"`
	Size       int64        `json:"size"`
	Start      int          `json:"start"`
	Freed      int          `json:"freed"`
	End        int          `json:"end"`
	StartTime  *float64     `json:"start_time"`
	EndTime    *float64     `json:"end_time"`
	Recorded   bool         `json:"recorded"`
	AliveAtEnd bool         `json:"alive_at_end"`
	Stream     string       `json:"stream"`
	Pool       string       `json:"pool"`
	Category   string       `json:"category"`
	Tag        string       `json:"tag"`
	Line       string       `json:"line"`
	Y          int64        `json:"y"` // on the axis of addresses; -1 if it is not there
	Stack      []frameText  `json:"stack,omitempty"`
	Segment    *segmentText `json:"segment"`
}

// A frameText is a frame as JSON.
type frameText struct {
	Label  string `json:"label"`
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Name   string `json:"name"`
	Folded bool   `json:"folded"`
}

// textOf returns a block as JSON, with its stack and segment if those are wanted.
func (r *Recording) textOf(i uint32, stack bool) *blockText {
	block := r.h.Block(int(i))
	b := &block
	t := &blockText{
		ID: int(i), Address: addressText(b.Ptr), Size: b.Size, Start: int(b.Start), Freed: int(b.Freed), End: int(b.End),
		Recorded: b.Recorded, AliveAtEnd: int(b.End) == r.events(), Stream: r.h.Label(holders.ByStream, b),
		Pool: r.h.Label(holders.ByPool, b), Category: b.Category.String(), Tag: r.h.TagOf(b),
		Line: r.h.Label(holders.ByLine, b), Y: -1,
	}
	if b.Recorded {
		at := float64(r.timeOf(int(b.Start)))
		t.StartTime = &at
	}
	if !t.AliveAtEnd {
		at := float64(r.timeOf(int(b.End)))
		t.EndTime = &at
	}
	spans, _ := r.addressAxis()
	if y, ok := yOf(spans, b.Ptr); ok {
		t.Y = y
	}
	if stack {
		t.Stack = r.stackText(b)
		if g := r.segmentOf(b.Ptr, int(b.Start)); g != nil {
			t.Segment = textOfSegment(g)
		}
	}
	return t
}

// segmentOf returns the segment with an address at a moment, or nil.
func (r *Recording) segmentOf(p driver.Pointer, event int) *segment {
	list := r.segmentsAt(event)
	n, found := slices.BinarySearchFunc(list, p, func(g segment, p driver.Pointer) int { return cmp.Compare(g.Ptr, p) })
	if !found {
		n--
	}
	if n < 0 || p >= list[n].limit {
		return nil
	}
	return &list[n]
}

// stackText returns the frames of a block, innermost first.
func (r *Recording) stackText(b *holders.Block) []frameText {
	list := []frameText{}
	if r.snapshot.Stacks == nil {
		return list
	}
	shown := map[int]bool{}
	frames := r.snapshot.Stacks.At(b.Stack)
	visible := r.h.Frames.Shown(b.Stack)
	for i, k := 0, 0; i < len(frames) && k < len(visible); i++ {
		if r.snapshot.Stacks.Frames[frames[i]] == visible[k] {
			shown[i] = true
			k++
		}
	}
	for i, n := range frames {
		f := r.snapshot.Stacks.Frames[n]
		list = append(list, frameText{
			Label: r.h.Frames.Label(f), File: f.Filename, Line: f.Line, Name: f.Name, Folded: !shown[i],
		})
	}
	return list
}
