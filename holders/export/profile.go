package export

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"io"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A usageKey identifies a sample: all its blocks have these values.
type usageKey struct {
	stack    trace.StackID
	device   int
	stream   uint64
	pool     mem.PoolID
	tag      string
	category holders.Category
	recorded bool // false: without a stack, the function says that the block is older than the recording
}

func (k *usageKey) compare(o *usageKey) int {
	return cmp.Or(
		cmp.Compare(k.device, o.device), cmp.Compare(k.stack, o.stack), cmp.Compare(k.stream, o.stream),
		slices.Compare(k.pool[:], o.pool[:]), strings.Compare(k.tag, o.tag), cmp.Compare(k.category, o.category),
	)
}

// A usage holds the values of a sample, in the order of sampleTypes.
type usage struct {
	allocObjects, allocBytes, inUseObjects, inUseBytes, soonObjects, soonBytes int64
}

var sampleTypes = [][2]string{
	{"alloc_objects", "count"},
	{"alloc_space", "bytes"},
	{"inuse_objects", "count"},
	{"inuse_space", "bytes"},
	{"freed_soon_objects", "count"},
	{"freed_soon_space", "bytes"},
}

// WriteProfile writes views, each of another device, as one profile for go tool pprof, compressed with gzip. The sample
// types are those of Go's heap profiles and one more, each with the number of blocks and their requested bytes:
//
//   - alloc_objects, alloc_space: all blocks of the history, with those that are older than it;
//   - inuse_objects, inuse_space: the blocks that are active at the moment of the view; pprof shows inuse_space by
//     default;
//   - freed_soon_objects, freed_soon_space: the blocks of these that are freed first. See holders.View.FreedSoon.
//
// Each sample has the labels device (the ordinal), stream (the handle, as 0x...), pool ("default" or "(n, m)"),
// category and, if the allocation had one, tag (its user_metadata). A block without a stack counts for the function
// "(no stack)" or, if it is older than the history, "(before the recording)".
//
// Memory use is proportional to the number of distinct samples. The error is that of w.
func WriteProfile(w io.Writer, views ...*holders.View) error {
	p := newProfile()
	for _, v := range views {
		p.view(v)
	}
	out := bufio.NewWriter(w) // detects a short write, unlike gzip
	z := gzip.NewWriter(out)
	if _, err := z.Write(p.encode(views)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// view writes the samples of a view, sorted by key, so the result is deterministic.
func (p *profile) view(v *holders.View) {
	h := v.History()
	usages := map[usageKey]*usage{}
	var keys []usageKey
	soon := v.FreedSoon()
	for i := range h.NumBlocks() {
		b := h.Block(i)
		k := usageKey{
			stack: b.Stack, device: v.Device(), stream: h.Streams[b.Stream], pool: h.Pools[b.Pool], tag: h.TagOf(&b),
			category: b.Category, recorded: b.Recorded || b.Stack != 0,
		}
		u := usages[k]
		if u == nil {
			u = &usage{}
			usages[k] = u
			keys = append(keys, k)
		}
		u.allocObjects++
		u.allocBytes += b.Size
		if !b.ActiveAt(v.Moment.Event) {
			continue
		}
		u.inUseObjects++
		u.inUseBytes += b.Size
		if int(b.End) <= soon {
			u.soonObjects++
			u.soonBytes += b.Size
		}
	}
	slices.SortFunc(keys, func(a, b usageKey) int { return a.compare(&b) })
	for i := range keys {
		p.sample(h, &keys[i], usages[keys[i]])
	}
}
