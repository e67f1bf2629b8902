package view

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
)

// maxPins is the number of blocks that are named of a segment with a hole.
const maxPins = 20

// A pickText says what is at a place of a picture.
type pickText struct {
	Block *blockText `json:"block"`
	Hole  *holeText  `json:"hole"`
}

// A holeText is a free range within a segment.
type holeText struct {
	Address     string       `json:"address"`
	Size        int64        `json:"size"`
	Y           int64        `json:"y"` // on the axis of addresses
	Segment     *segmentText `json:"segment"`
	Pins        []*blockText `json:"pins"` // the largest blocks of the segment, which keep it
	PinnedBytes int64        `json:"pinned_bytes"`
	Blocks      int          `json:"blocks"`
}

// pickBand returns the block at a height of the stacked bands.
func (r *Recording) pickBand(event int, y int64, match func(uint32) bool) *pickText {
	set := activeSet{r: r, match: match}
	set.advance(event)
	for _, i := range set.list {
		if y -= r.lives.Size(int(i)); y < 0 {
			return &pickText{Block: r.textOf(i, true)}
		}
	}
	return &pickText{}
}

// pickAddress returns the block or the hole at a place of the axis of addresses.
func (r *Recording) pickAddress(event int, y int64) *pickText {
	spans, _ := r.addressAxis()
	p, ok := addressOf(spans, y)
	if !ok {
		return &pickText{}
	}
	g := r.segmentOf(p, event)
	var hole addressRange
	if g != nil {
		hole = addressRange{g.Ptr, g.limit}
	}
	t := &holeText{Pins: []*blockText{}}
	var inside []uint32
	for _, i := range r.ends.active(r.lives, event, nil) {
		b := r.lives.At(int(i))
		limit := b.Ptr + driver.Pointer(b.Size)
		if b.Ptr <= p && p < limit {
			return &pickText{Block: r.textOf(i, true)}
		}
		if g == nil || b.Ptr < g.Ptr || b.Ptr >= g.limit {
			continue
		}
		inside = append(inside, i)
		t.PinnedBytes += b.Size
		if b.Ptr > p {
			hole.limit = min(hole.limit, b.Ptr)
		} else {
			hole.ptr = max(hole.ptr, limit)
		}
	}
	if g == nil {
		return &pickText{}
	}
	t.Address, t.Size = addressText(hole.ptr), int64(hole.limit-hole.ptr)
	t.Segment, t.Blocks = textOfSegment(g), len(inside)
	t.Y, _ = yOf(spans, hole.ptr)
	r.sortBySize(inside)
	for _, i := range inside[:min(len(inside), maxPins)] {
		t.Pins = append(t.Pins, r.textOf(i, false))
	}
	return &pickText{Hole: t}
}

// sortBySize sorts blocks, the largest first.
func (r *Recording) sortBySize(list []uint32) {
	slices.SortStableFunc(list, func(a, b uint32) int {
		return cmp.Compare(r.lives.Size(int(b)), r.lives.Size(int(a)))
	})
}

// A blockList is a list of blocks as JSON.
type blockList struct {
	Blocks []*blockText `json:"blocks"`
	Total  int          `json:"total"` // also those that are not listed
	Bytes  int64        `json:"bytes"` // of all of them
}

// listOf returns the largest blocks of a list.
func (r *Recording) listOf(list []uint32, limit int) *blockList {
	out := &blockList{Blocks: []*blockText{}, Total: len(list)}
	for _, i := range list {
		out.Bytes += r.lives.Size(int(i))
	}
	r.sortBySize(list)
	for _, i := range list[:min(len(list), limit)] {
		out.Blocks = append(out.Blocks, r.textOf(i, false))
	}
	return out
}

// within returns the active blocks of a part of a picture, from the height low up to high.
func (r *Recording) within(event int, addresses bool, low, high int64, match func(uint32) bool) []uint32 {
	set := activeSet{r: r, match: match}
	set.advance(event)
	spans, _ := r.addressAxis()
	sum := int64(0)
	return filtered(set.list, func(i uint32) bool {
		size := r.lives.Size(int(i))
		y, ok := sum, true
		sum += size
		if addresses {
			y, ok = yOf(spans, r.lives.Ptr(int(i)))
		}
		return ok && y < high && y+size > low
	})
}

// allBlocks returns all blocks that match.
func (r *Recording) allBlocks(match func(uint32) bool) (list []uint32) {
	for i := range r.lives.Len() {
		if match == nil || match(uint32(i)) {
			list = append(list, uint32(i))
		}
	}
	return list
}

// A holdersText has the holders at a moment as JSON.
type holdersText struct {
	Event   int          `json:"event"`
	Time    float64      `json:"time"`
	Bytes   int64        `json:"bytes"`
	Blocks  int          `json:"blocks"`
	By      []string     `json:"by"`
	Total   int          `json:"total"`
	Holders []holderText `json:"holders"`
	Rest    restText     `json:"rest"`
}

type holderText struct {
	Values []string `json:"values"`
	restText
}

// A restText has the sums of some blocks.
type restText struct {
	Bytes  int64 `json:"bytes"`
	Blocks int   `json:"blocks"`
}

// viewAt returns the matching blocks at a moment.
func (r *Recording) viewAt(event int, match func(uint32) bool) *holders.View {
	v := r.h.NewView(holders.Moment{Event: event, Bytes: r.h.ActiveBytes(event)})
	set := activeSet{r: r, match: match}
	set.advance(event)
	for _, i := range set.list {
		b := r.h.Block(int(i))
		v.Blocks = append(v.Blocks, b)
		v.Bytes += b.Size
	}
	return v
}

// holdersAt returns the holders at a moment.
func (r *Recording) holdersAt(event int, keys []holders.Key, limit int, match func(uint32) bool) *holdersText {
	v := r.viewAt(event, match)
	t := &holdersText{
		Event: event, Time: float64(r.timeOf(event)), Bytes: v.Bytes, Blocks: len(v.Blocks), Holders: []holderText{},
	}
	for _, k := range keys {
		t.By = append(t.By, k.String())
	}
	all := v.By(keys...)
	t.Total = len(all)
	for i, x := range all {
		if i < limit {
			t.Holders = append(t.Holders, holderText{x.Values, restText{x.Bytes, x.Blocks}})
			continue
		}
		t.Rest.Bytes += x.Bytes
		t.Rest.Blocks += x.Blocks
	}
	return t
}

// A flameText is a box of a flame graph as JSON: the blocks whose stacks begin with the same frames, from the outermost
// one on.
type flameText struct {
	Name string `json:"name"`
	restText
	Children []*flameText `json:"children,omitempty"`

	index map[string]*flameText
}

// maxFlames is the number of frames of a stack in a flame graph.
const maxFlames = 256

// flameAt returns the flame graph of a moment. Only frames that are not folded appear.
func (r *Recording) flameAt(event int, match func(uint32) bool) *flameText {
	v := r.viewAt(event, match)
	root := &flameText{}
	paths := map[uint32][]string{}
	for i := range v.Blocks {
		b := &v.Blocks[i]
		path, known := paths[uint32(b.Stack)]
		if !known {
			for _, f := range r.h.Frames.Shown(b.Stack) {
				path = append(path, r.h.Frames.Label(f))
			}
			slices.Reverse(path)
			path = path[:min(len(path), maxFlames)]
			paths[uint32(b.Stack)] = path
		}
		if len(path) == 0 {
			path = []string{holders.NoStack(b.Recorded)}
		}
		at := root
		at.add(b)
		for _, name := range path {
			at = at.child(name)
			at.add(b)
		}
	}
	root.sort()
	return root
}

func (f *flameText) add(b *holders.Block) {
	f.Bytes += b.Size
	f.Blocks++
}

func (f *flameText) child(name string) *flameText {
	c := f.index[name]
	if c == nil {
		c = &flameText{Name: name}
		if f.index == nil {
			f.index = map[string]*flameText{}
		}
		f.index[name] = c
		f.Children = append(f.Children, c)
	}
	return c
}

// sort sorts all boxes, the largest first.
func (f *flameText) sort() {
	slices.SortFunc(f.Children, func(a, b *flameText) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	for _, c := range f.Children {
		c.sort()
	}
}

// A lineText has the figures of a line as JSON.
type lineText struct {
	Line        uint32 `json:"line"`
	Label       string `json:"label"`
	BytesAtPeak int64  `json:"bytes_at_peak"`
	Blocks      int    `json:"blocks"`      // in the whole recording
	TotalBytes  int64  `json:"total_bytes"` // of these
}

// linesOf returns the lines of blocks, those with the most bytes at the peak first.
func (r *Recording) linesOf(list []uint32, limit int) []*lineText {
	peak, _ := r.peak()
	index := map[uint32]*lineText{}
	lines := []*lineText{}
	for _, i := range list {
		b := r.h.Block(int(i))
		n := r.line(&b)
		x := index[n]
		if x == nil {
			x = &lineText{Line: n, Label: r.lines[n]}
			index[n] = x
			lines = append(lines, x)
		}
		x.Blocks++
		x.TotalBytes += b.Size
		if b.ActiveAt(peak) {
			x.BytesAtPeak += b.Size
		}
	}
	slices.SortStableFunc(lines, func(a, b *lineText) int {
		return cmp.Or(cmp.Compare(b.BytesAtPeak, a.BytesAtPeak), cmp.Compare(b.TotalBytes, a.TotalBytes))
	})
	return lines[:min(len(lines), limit)]
}
