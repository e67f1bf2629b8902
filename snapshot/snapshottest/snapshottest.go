// Package snapshottest generates snapshots for tests and benchmarks: pickles with the structure of PyTorch's, of any
// length, from a seed.
//
// The pickles are written as Python's own writer does: containers and strings are memoised, a string or list that was
// written before is fetched from the memo, lists are filled in batches of 1000, and from protocol 4 on there are frames
// of 64 KiB. Pickler has only the opcodes that this needs; it is for tests only.
package snapshottest

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
)

// A Config says what to generate. The same Config gives the same bytes.
type Config struct {
	Seed     uint64
	Events   int    // trace entries, approximately, so that every free has its allocation
	Protocol int    // 2 to 5; 0 means 4
	Stacks   int    // distinct stacks that entries share; 0 gives entries without frames
	Depth    int    // frames of a stack; 0 means 12
	Live     int    // allocated blocks at a time; 0 means 2000
	Conf     string // PYTORCH_CUDA_ALLOC_CONF
}

// A Summary is what was generated.
type Summary struct {
	Events, Allocs, Frees, Segments int
	Bytes                           int64 // of the pickle
	RequestedPeak, ReservedBytes    int64
}

const (
	firstAddress = 0x7f0000000000
	firstTime    = 1790000000000000
	smallSegment = 2 << 20
	batch        = 1000 // items that Python adds to a list at a time
)

// Write generates a snapshot of one device and writes it to w. Memory use does not depend on the number of events.
func Write(w io.Writer, c Config) (Summary, error) {
	c.Protocol = cmp.Or(c.Protocol, 4)
	c.Depth = cmp.Or(c.Depth, 12)
	c.Live = cmp.Or(c.Live, 2000)
	g := &generator{
		Config: c, p: NewPickler(w, c.Protocol), random: rand.New(rand.NewPCG(c.Seed, 0x5a5a)),
		address: firstAddress, time: firstTime, free: map[int64][]*slot{},
	}
	g.snapshot()
	err := g.p.Close()
	g.sum.Bytes = g.p.Written()
	return g.sum, err
}

// A generator is a small allocator that writes an entry for every call. A segment is divided into slots of one size.
type generator struct {
	Config
	p        *Pickler
	random   *rand.Rand
	sum      Summary
	address  uint64
	time     int64
	pending  int // entries in the open batch
	stacks   []uint32
	segments []*segment
	free     map[int64][]*slot // by size
	live     []*slot
	request  int64 // bytes
}

type segment struct {
	address uint64
	size    int64
	slots   []*slot
}

type slot struct {
	address   uint64
	size      int64
	requested int64
	stack     int
	used      bool
}

func (g *generator) snapshot() {
	p := g.p
	p.Dict()
	p.Mark()
	p.Key("device_traces")
	p.List()
	p.List()
	p.Mark()
	for g.sum.Events < g.Events {
		switch {
		case len(g.live) < g.Live*9/10:
			g.alloc()
		case len(g.live) > g.Live*11/10 || g.random.IntN(2) == 0:
			g.release(g.random.IntN(len(g.live)))
		default:
			g.alloc()
		}
	}
	p.Appends()
	p.Append()
	p.Key("segments")
	p.List()
	p.Mark()
	for i, s := range g.segments {
		if i > 0 && i%batch == 0 {
			p.Appends()
			p.Mark()
		}
		g.writeSegment(s)
	}
	p.Appends()
	p.Key("allocator_settings")
	p.Dict()
	p.Mark()
	p.Key("PYTORCH_CUDA_ALLOC_CONF")
	p.Str(g.Conf)
	p.Key("max_split_size")
	p.Int(-1)
	p.Key("garbage_collection_threshold")
	p.Float(0)
	p.Key("expandable_segments")
	p.Bool(false)
	p.SetItems()
	p.Key("external_annotations")
	p.List()
	p.SetItems()
	g.sum.Segments = len(g.segments)
}

// size draws a request: most are small, a few are large, all are drawn from a small set as layers of a model are.
func (g *generator) size() int64 {
	return int64(4+g.random.IntN(4)) << (7 + g.random.IntN(16))
}

func (g *generator) alloc() {
	requested := g.size()
	size := (requested + 511) &^ 511
	if len(g.free[size]) == 0 {
		g.grow(size)
	}
	list := g.free[size]
	s := list[len(list)-1]
	g.free[size] = list[:len(list)-1]
	s.requested, s.used = requested, true
	if g.Stacks > 0 {
		s.stack = g.random.IntN(g.Stacks)
	}
	g.live = append(g.live, s)
	g.request += requested
	g.sum.RequestedPeak = max(g.sum.RequestedPeak, g.request)
	g.sum.Allocs++
	g.entry("alloc", s.address, requested, s.stack)
}

func (g *generator) release(i int) {
	s := g.live[i]
	g.live[i] = g.live[len(g.live)-1]
	g.live = g.live[:len(g.live)-1]
	s.used = false
	g.free[s.size] = append(g.free[s.size], s)
	g.request -= s.requested
	g.sum.Frees++
	g.entry("free_requested", s.address, s.requested, s.stack)
	g.entry("free_completed", s.address, s.requested, s.stack)
}

// grow adds a segment for slots of a size.
func (g *generator) grow(size int64) {
	total := max(smallSegment, (size+smallSegment-1)/smallSegment*smallSegment)
	seg := &segment{address: g.address, size: total}
	g.address += uint64(total)
	for at := int64(0); at+size <= total; at += size {
		s := &slot{address: seg.address + uint64(at), size: size}
		seg.slots = append(seg.slots, s)
		g.free[size] = append(g.free[size], s)
	}
	g.segments = append(g.segments, seg)
	g.sum.ReservedBytes += total
	g.entry("segment_alloc", seg.address, total, 0)
}

// entry writes one trace entry, with the keys in the order of PyTorch's.
func (g *generator) entry(action string, address uint64, size int64, stack int) {
	p := g.p
	if g.pending == batch {
		p.Appends()
		p.Mark()
		g.pending = 0
	}
	g.pending++
	g.sum.Events++
	g.time += int64(g.random.IntN(40))
	p.Dict()
	p.Mark()
	p.Key("action")
	p.Key(action)
	p.Key("addr")
	p.Int(int64(address))
	p.Key("size")
	p.Int(size)
	p.Key("stream")
	p.Int(0)
	p.Key("time_us")
	p.Int(g.time)
	p.Key("compile_context")
	p.Str("N/A") // a new str each time, as in PyTorch's files
	p.Key("user_metadata")
	p.Key("")
	if g.Stacks > 0 {
		p.Key("frames")
		g.frames(stack)
	}
	p.SetItems()
}

// frames writes a stack, or fetches it if it was written before.
func (g *generator) frames(stack int) {
	p := g.p
	for len(g.stacks) < g.Stacks {
		g.stacks = append(g.stacks, 0)
	}
	if g.stacks[stack] > 0 {
		p.Get(g.stacks[stack] - 1)
		return
	}
	g.stacks[stack] = p.List() + 1
	p.Mark()
	for i := range g.Depth {
		p.Dict()
		p.Mark()
		p.Key("name")
		p.Key(fmt.Sprintf("forward_%d", (stack*7+i)%500))
		p.Key("filename")
		p.Key(fmt.Sprintf("site-packages/model/layer_%d.py", (stack+i*3)%100))
		p.Key("line")
		p.Int(int64(10 + (stack*31+i*17)%2000))
		p.SetItems()
	}
	p.Appends()
}
