package snapshot

import (
	"bufio"
	"compress/gzip"
	"io"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A usageKey identifies a sample: all its blocks have these values.
type usageKey struct {
	stack  trace.StackID
	device int
	stream uint64
	pool   mem.PoolID
	tag    string
}

// A usage holds the values of a sample, in the order of sampleTypes.
type usage struct {
	allocObjects, allocBytes, inUseObjects, inUseBytes int64
}

var sampleTypes = [][2]string{
	{"alloc_objects", "count"}, {"alloc_space", "bytes"}, {"inuse_objects", "count"}, {"inuse_space", "bytes"},
}

// WriteProfile writes a profile for go tool pprof, compressed with gzip, with the sample types of Go's heap profiles:
// total blocks and bytes (alloc_objects, alloc_space), and allocated blocks and bytes (inuse_objects, inuse_space,
// which pprof shows by default), by call stack. Bytes are requested bytes. Each sample has the labels device (the
// ordinal), stream (the handle, as 0x...), pool ("default" or "(n, m)") and, if the allocation had one, tag (its
// user_metadata).
//
// The allocated blocks are those of the segments or, for a device without segments, those allocated at the end of its
// trace. The totals include the trace and blocks that are older than the trace. If the start of the trace is missing,
// blocks that were freed before it are not counted. The stack is that of the allocation event, or else of the block; a
// block without a stack is counted under the function "(no stack)". The state of blocks after a gap in the trace
// (trace.Trace.Gaps) is unknown: blocks after the gap count as different blocks, which are older than the trace. A
// freed block that other streams still use is not allocated.
//
// Memory use is proportional to the number of distinct stacks, streams, pools and tags, and of allocated blocks. The
// error is that of w.
func (s *Snapshot) WriteProfile(w io.Writer) error {
	p := usages{}
	for device := range s.NumDevices() {
		p.device(s, device)
	}
	out := bufio.NewWriter(w) // detects a short write, unlike gzip
	z := gzip.NewWriter(out)
	if _, err := z.Write(encodeProfile(p, s)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// usages holds the samples.
type usages map[usageKey]*usage

func (p usages) of(k usageKey) *usage {
	u := p[k]
	if u == nil {
		u = &usage{}
		p[k] = u
	}
	return u
}

// A tracedBlock is an allocated block with the data that the trace has of it.
type tracedBlock struct {
	key  usageKey
	size int64
}

// device adds the samples of one device.
func (p usages) device(s *Snapshot, device int) {
	blocks := map[driver.Pointer]tracedBlock{}
	if device < len(s.Traces) && s.Traces[device] != nil {
		p.trace(s, s.Traces[device], blocks)
	}
	own := s.SegmentsOf(device)
	for i := range own {
		p.segment(&own[i], blocks)
	}
	if len(own) > 0 {
		return
	}
	for _, l := range blocks {
		u := p.of(l.key)
		u.inUseObjects++
		u.inUseBytes += l.size
	}
}

// trace counts allocations. At the end blocks contains the blocks that were not freed.
func (p usages) trace(s *Snapshot, t *trace.Trace, blocks map[driver.Pointer]tracedBlock) {
	poolAt := s.poolsOf(t)
	gaps := t.Gaps
	for i := range t.Events {
		if len(gaps) > 0 && gaps[0] <= i {
			gaps = gaps[1:]
			clear(blocks)
		}
		switch e := &t.Events[i]; e.Action {
		case mem.ActionAlloc:
			k := usageKey{e.Stack, t.Device, t.Streams[e.Stream], poolAt(e), t.Metadata[e.Metadata]}
			u := p.of(k)
			u.allocObjects++
			u.allocBytes += e.Size
			blocks[e.Ptr] = tracedBlock{k, e.Size}
		case mem.ActionFreeRequested, mem.ActionFreeCompleted:
			delete(blocks, e.Ptr)
		}
	}
	if len(gaps) > 0 {
		clear(blocks)
	}
}

// segment counts the allocated blocks.
func (p usages) segment(seg *Segment, blocks map[driver.Pointer]tracedBlock) {
	for i := range seg.Blocks {
		b := &seg.Blocks[i]
		if b.State != mem.ActiveAllocated {
			continue
		}
		size := b.RequestedSize
		if size == 0 {
			size = b.Size // from files before requested sizes were recorded
		}
		l, known := blocks[b.Ptr]
		k, counted := l.key, known
		switch {
		case !known:
			k, l.size = usageKey{b.Stack, seg.Device, seg.Stream, seg.Pool, ""}, size
		case k.stack == 0 && b.Stack != 0: // only the block has it, as in a snapshot from Of
			was := p.of(k)
			was.allocObjects--
			was.allocBytes -= l.size
			k.stack, counted = b.Stack, false
		}
		u := p.of(k)
		if !counted {
			u.allocObjects++
			u.allocBytes += l.size
		}
		u.inUseObjects++
		u.inUseBytes += size
	}
}

// poolsOf returns a function for the pool of an event's block. If the trace has no pools, they are those of the
// remaining segments.
func (s *Snapshot) poolsOf(t *trace.Trace) func(e *trace.Event) mem.PoolID {
	if t.PoolsKnown {
		return func(e *trace.Event) mem.PoolID { return t.Pools[e.Pool] }
	}
	own := s.SegmentsOf(t.Device)
	return func(e *trace.Event) mem.PoolID {
		i := sort.Search(len(own), func(i int) bool { return own[i].Ptr > e.Ptr }) - 1
		if i >= 0 && e.Ptr-own[i].Ptr < driver.Pointer(own[i].TotalSize) {
			return own[i].Pool
		}
		return mem.PoolID{}
	}
}

// span returns the earliest and the latest time of all events with a time, on all devices, in microseconds, or zeros.
func (s *Snapshot) span() (first, last int64) {
	for _, t := range s.Traces {
		if t == nil {
			continue
		}
		for i := range t.Events {
			us := t.Events[i].TimeUS
			if us == 0 {
				continue
			}
			if first == 0 || us < first {
				first = us
			}
			last = max(last, us)
		}
	}
	return first, last
}
