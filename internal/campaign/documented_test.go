package campaign

import (
	"math/bits"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/trace"
)

// A documented is a second model of PyTorch's caching allocator, from its documentation: "Memory management" in the notes
// on CUDA semantics, and the comments of c10. It is slow and obvious: one list of segments, each a list of blocks, and
// linear searches. It has no expandable segments, private pools or captures. Segments come from a device of its own.
// Streams do nothing by themselves: their work is done when they are waited for.
type documented struct {
	dev  driver.Device
	set  documentedSettings
	segs []*docSegment
	// Of each stream: the work queued, and the work done.
	queued, done map[uint32]int
	events       []docEvent // in the order of the frees
	byName       map[string]*docBlock
	reserved     int64
	searches     int64 // of the large pool, while garbage collection is on
	retries      int64
}

// Settings are those of PYTORCH_ALLOC_CONF, in bytes.
type documentedSettings struct {
	maxSplit    int64   // max_split_size_mb; 0 is none
	maxRounding int64   // max_non_split_rounding_mb
	divisions   int64   // roundup_power2_divisions, the same for all sizes
	gcThreshold float64 // garbage_collection_threshold
	limit       int64   // what the memory fraction allows; 0 is no limit
	searchAgain bool    // search once more after the last wait, which PyTorch does not
}

type docSegment struct {
	stream uint32
	small  bool
	blocks []*docBlock // by address; they cover the segment
}

func (g *docSegment) size() (sum int64) {
	for _, b := range g.blocks {
		sum += b.size
	}
	return sum
}

type docBlock struct {
	at        driver.Pointer
	size      int64
	live      bool
	waits     int   // events of other streams
	searches0 int64 // the searches when it became free: its age counts from there
}

func (b *docBlock) free() bool { return !b.live && b.waits == 0 }

type docEvent struct {
	stream uint32
	work   int
	block  *docBlock
}

const (
	smallSize   = 1 << 20  // blocks up to 1 MiB come from the small pool
	smallBuffer = 2 << 20  // whose segments have 2 MiB
	largeBuffer = 20 << 20 // segments for requests up to 10 MiB
	minLarge    = 10 << 20 // larger requests get a segment of their own,
	roundLarge  = 2 << 20  // rounded up to 2 MiB
)

// round is the size of the block for a request: a multiple of 512 bytes, or one of the equal steps between powers of two.
func (m *documented) round(size int64) int64 {
	if size < 512 {
		return 512
	}
	if d := m.set.divisions; d > 1 && size > 512*d {
		power := int64(1) << (bits.Len64(uint64(size)) - 1)
		if power == size {
			return size
		}
		step := power / d
		return (size + step - 1) / step * step
	}
	return (size + 511) / 512 * 512
}

func segmentFor(size int64) int64 {
	switch {
	case size <= smallSize:
		return smallBuffer
	case size < minLarge:
		return largeBuffer
	}
	return (size + roundLarge - 1) / roundLarge * roundLarge
}

// find returns the smallest free block of the stream's pool that is large enough, and the lowest of equals.
func (m *documented) find(stream uint32, small bool, size int64) (best *docBlock, of *docSegment) {
	if m.set.gcThreshold > 0 && m.set.limit > 0 && !small {
		m.searches++
	}
	for _, g := range m.segs {
		if g.stream != stream || g.small != small {
			continue
		}
		for _, b := range g.blocks {
			if b.free() && b.size >= size && (best == nil || b.size < best.size || b.size == best.size && b.at < best.at) {
				best, of = b, g
			}
		}
	}
	// Blocks that may not be split serve only requests of nearly their size.
	if s := m.set.maxSplit; best != nil && s > 0 {
		if size < s && best.size >= s || size >= s && best.size >= size+m.set.maxRounding {
			return nil, nil
		}
	}
	return best, of
}

// alloc returns the block for a request, or nil if there is no room.
func (m *documented) alloc(name string, stream uint32, asked int64) *docBlock {
	m.processEvents()
	size := m.round(asked)
	small := size <= smallSize
	b, g := m.find(stream, small, size)
	if b == nil {
		m.collectGarbage()
		b, g = m.grow(stream, small, size)
	}
	if b == nil && m.releaseOversize(stream, small, size) {
		b, g = m.grow(stream, small, size)
	}
	if b == nil {
		m.waitForEvents()
		if m.set.searchAgain {
			b, g = m.find(stream, small, size)
		}
	}
	if b == nil {
		m.releaseUnused()
		m.retries++
		b, g = m.grow(stream, small, size)
	}
	if b == nil {
		return nil
	}
	// The rest of a block stays free, if it may be split and the rest is worth it.
	rest := b.size - size
	if small && rest >= 512 || !small && rest > smallSize && (m.set.maxSplit == 0 || size < m.set.maxSplit) {
		b.size = size
		g.insertAfter(b, &docBlock{at: b.at + driver.Pointer(size), size: rest, searches0: m.searchesOf(small)})
	}
	b.live = true
	m.byName[name] = b
	return b
}

func (m *documented) searchesOf(small bool) int64 {
	if small {
		return 0
	}
	return m.searches
}

func (g *docSegment) insertAfter(b, next *docBlock) {
	var blocks []*docBlock
	for _, x := range g.blocks {
		blocks = append(blocks, x)
		if x == b {
			blocks = append(blocks, next)
		}
	}
	g.blocks = blocks
}

// grow gets a segment from the device, within the limit.
func (m *documented) grow(stream uint32, small bool, size int64) (*docBlock, *docSegment) {
	n := segmentFor(size)
	if m.set.limit > 0 && m.reserved+n > m.set.limit {
		return nil, nil
	}
	at, err := m.dev.Alloc(n)
	if err != nil {
		return nil, nil
	}
	m.reserved += n
	g := &docSegment{stream: stream, small: small, blocks: []*docBlock{{at: at, size: n}}}
	m.segs = append(m.segs, g)
	return g.blocks[0], g
}

// release returns a segment to the device, which waits for all work.
func (m *documented) release(g *docSegment) {
	m.reserved -= g.size()
	if err := m.dev.Free(g.blocks[0].at); err != nil {
		panic(err)
	}
	for s, n := range m.queued {
		m.done[s] = n
	}
	var segs []*docSegment
	for _, x := range m.segs {
		if x != g {
			segs = append(segs, x)
		}
	}
	m.segs = segs
}

// freeBlock frees a block. Other streams that use it record events, and the block waits for them.
func (m *documented) freeBlock(name string, used []uint32) {
	b := m.byName[name]
	delete(m.byName, name)
	b.live = false
	g := m.segmentOf(b)
	seen := map[uint32]bool{g.stream: true}
	for _, s := range used {
		if !seen[s] {
			seen[s] = true
			b.waits++
			m.queued[s]++ // the event is work itself
			m.events = append(m.events, docEvent{s, m.queued[s], b})
		}
	}
	m.merge(b)
}

func (m *documented) segmentOf(b *docBlock) *docSegment {
	for _, g := range m.segs {
		for _, x := range g.blocks {
			if x == b {
				return g
			}
		}
	}
	panic("a block of no segment")
}

// merge joins a block that became free with its free neighbours.
func (m *documented) merge(b *docBlock) {
	if !b.free() {
		return
	}
	g := m.segmentOf(b)
	var blocks []*docBlock
	for _, x := range g.blocks {
		if n := len(blocks); n > 0 && x.free() && blocks[n-1].free() {
			last := blocks[n-1]
			last.size += x.size
			if x == b {
				b = last
			}
			continue
		}
		blocks = append(blocks, x)
	}
	g.blocks = blocks
	b.searches0 = m.searchesOf(g.small)
}

// processEvents frees the blocks whose events are done. On each stream it stops at the first that is not.
func (m *documented) processEvents() {
	stopped := map[uint32]bool{}
	var left []docEvent
	for _, e := range m.events {
		if stopped[e.stream] || m.done[e.stream] < e.work {
			stopped[e.stream] = true
			left = append(left, e)
			continue
		}
		e.block.waits--
		m.merge(e.block)
	}
	m.events = left
}

func (m *documented) waitForEvents() {
	for _, e := range m.events {
		m.sync(e.stream)
	}
	m.processEvents()
}

func (m *documented) sync(s uint32) { m.done[s] = m.queued[s] }

// unused returns the segments that are one free block.
func (m *documented) unused() (all []*docSegment) {
	for _, g := range m.segs {
		if len(g.blocks) == 1 && g.blocks[0].free() {
			all = append(all, g)
		}
	}
	return all
}

func (m *documented) releaseUnused() {
	for _, g := range m.unused() {
		m.release(g)
	}
}

func (m *documented) emptyCache() {
	m.waitForEvents()
	m.releaseUnused()
}

// releaseOversize releases one unsplit block of the stream that is large enough for the request, the smallest, or else
// oversize blocks, the largest first, until they have as many bytes. It reports whether they do.
func (m *documented) releaseOversize(stream uint32, small bool, size int64) bool {
	if m.set.maxSplit == 0 {
		return false
	}
	want := max(size, m.set.maxSplit)
	oversize := func(better func(a, b *docBlock) bool, least int64) (best *docSegment) {
		for _, g := range m.unused() {
			b := g.blocks[0]
			if g.stream == stream && g.small == small && b.size >= least && (best == nil || better(b, best.blocks[0])) {
				best = g
			}
		}
		return best
	}
	if g := oversize(func(a, b *docBlock) bool { return a.size < b.size || a.size == b.size && a.at < b.at }, want); g != nil {
		m.release(g)
		return true
	}
	var released int64
	for released < want {
		g := oversize(func(a, b *docBlock) bool { return a.size > b.size || a.size == b.size && a.at > b.at }, m.set.maxSplit)
		if g == nil {
			break
		}
		released += g.size()
		m.release(g)
	}
	return released >= want
}

// collectGarbage releases unused segments of the large pool once more than the threshold is reserved: all that are at
// least as old as the average, as often as needed.
func (m *documented) collectGarbage() {
	if m.set.gcThreshold == 0 || m.set.limit == 0 {
		return
	}
	goal := m.reserved - int64(m.set.gcThreshold*float64(m.set.limit))
	for goal > 0 {
		var old []*docSegment
		var ages int64
		for _, g := range m.unused() {
			if !g.small {
				old = append(old, g)
				ages += m.searches - g.blocks[0].searches0
			}
		}
		any := false
		for _, g := range old {
			if float64(m.searches-g.blocks[0].searches0) >= float64(ages)/float64(len(old)) {
				goal -= g.size()
				m.release(g)
				any = true
			}
		}
		if !any {
			return
		}
	}
}

// do runs a command of a script, and returns the address of an alloc: 0 if there is no room.
func (m *documented) do(c *trace.Command) driver.Pointer {
	switch c.Verb {
	case trace.VerbAlloc:
		if b := m.alloc(c.Name, c.Stream, c.Size); b != nil {
			return b.at
		}
	case trace.VerbFree:
		m.freeBlock(c.Name, c.Used)
	case trace.VerbWork:
		m.queued[c.Stream]++
	case trace.VerbSync:
		m.sync(c.Stream)
	case trace.VerbEmptyCache:
		m.emptyCache()
	}
	return 0
}
