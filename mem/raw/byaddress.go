package raw

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/addrmap"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// An Addressed allocator finds blocks by their addresses, for callers that keep nothing else. See NewAddressed.
type Addressed struct {
	LiveBlocks
	source source
}

// LiveBlocks holds live blocks of any allocators by their addresses. It is safe for concurrent use.
type LiveBlocks struct {
	name, free string // names of the interface and of its Free, for panics
	blocks     addrmap.Map[liveEntry]
}

// A liveEntry is a live block, the allocator that it came from, and the streams that RecordStream named for it, nil if
// there are none. It is small because every entry is copied into the map and out of it, and few blocks have such
// streams.
type liveEntry struct {
	mem.Block
	from *source
	used *[]driver.Stream
}

// A source is an allocator and the device whose memory it allocates, nil if unknown.
type source struct {
	mem.Allocator
	dev driver.Device
}

// NewAddressed returns an allocator over a for callers that keep only a block's address, as C interfaces do. It keeps
// the live blocks in a sharded map, so that concurrent callers seldom wait. See Current for the allocator that a whole
// process shares.
func NewAddressed(a mem.Allocator) *Addressed {
	return &Addressed{LiveBlocks: LiveBlocks{name: "raw: Addressed", free: "Free"}, source: source{Allocator: a}}
}

// Alloc returns the address of at least size bytes for work queued on s from now on. A size of zero gives the zero
// Pointer; a negative size panics. Errors are those of the allocator below.
func (x *Addressed) Alloc(s driver.Stream, size int64) (driver.Pointer, error) {
	return x.alloc(&x.source, s, size)
}

// Unwrap implements mem.Wrapper. An Addressed is not itself a mem.Allocator: use Unwrap with mem.Find.
func (x *Addressed) Unwrap() mem.Allocator { return x.source.Allocator }

// alloc allocates a block and records it. All devices share one address space: if another device has a live block at
// the same address, alloc frees the new block and returns an error.
func (x *LiveBlocks) alloc(from *source, s driver.Stream, size int64) (driver.Pointer, error) {
	b, err := from.Alloc(s, size)
	if err != nil || b.Ptr == 0 {
		return 0, err
	}
	shard := x.blocks.Lock(b.Ptr)
	if _, taken := shard.At[b.Ptr]; !taken {
		shard.Put(b.Ptr, liveEntry{Block: b, from: from})
		shard.Unlock()
		return b.Ptr, nil
	}
	old := shard.At[b.Ptr]
	shard.Unlock()
	if old.from.dev == from.dev {
		panic(fmt.Sprintf("%s: the allocator below returned %#x, which is live already (%d bytes)",
			x.name, uint64(b.Ptr), old.Size))
	}
	from.Free(b)
	return 0, fmt.Errorf("%s: Alloc of %d bytes at %#x, where another device has a live block (%d bytes): "+
		"these devices do not share one space of addresses", x.name, size, uint64(b.Ptr), old.Size)
}

// RecordStream records that work on s uses the live block that contains p. The block's Free then also waits for s, as
// if s were passed to it, like PyTorch's Tensor.record_stream for a tensor and its views. Recording a stream again is a
// no-op, and the zero Pointer is ignored. An address that lies in no live block panics.
//
// The caller orders RecordStream before the block's Free, and queues the work on s before that Free. For an address
// that is not the start of a block, the time grows with the number of blocks, as for Below.
func (x *LiveBlocks) RecordStream(p driver.Pointer, s driver.Stream) {
	check.Stream(x.name+": RecordStream", s)
	if p == 0 || x.record(p, s) {
		return
	}
	if l, ok := x.Holding(p); !ok || !x.record(l.Ptr, s) {
		panic(x.unknown("RecordStream", p))
	}
}

// record records a stream that uses the live block at p. It returns false if there is no such block.
func (x *LiveBlocks) record(p driver.Pointer, s driver.Stream) bool {
	shard := x.blocks.Lock(p)
	defer shard.Unlock()
	l, ok := shard.At[p]
	switch {
	case !ok:
		return false
	case l.used == nil:
		l.used = &[]driver.Stream{s}
		shard.At[p] = l
	case !slices.Contains(*l.used, s):
		*l.used = append(*l.used, s)
	}
	return true
}

// Free frees a block that Alloc returned. Work queued before this call on the block's stream, on each stream in used,
// and on each that RecordStream named, may still use it. Freeing the zero Pointer is a no-op. An address that Alloc did
// not return, or that has been freed, panics with the nearest live block in the message.
func (x *LiveBlocks) Free(p driver.Pointer, used ...driver.Stream) {
	if p != 0 && !x.TryFree(p, used...) {
		panic(x.unknown(x.free, p))
	}
}

// TryFree is Free for callers that have addresses of other allocators too: it reports false, and does nothing, if no
// live block starts at p.
func (x *LiveBlocks) TryFree(p driver.Pointer, used ...driver.Stream) bool {
	if len(used) > 0 {
		check.Used(x.name+": "+x.free, used)
	}
	// Remove the entry before the free: afterwards the address may be allocated again.
	shard := x.blocks.Lock(p)
	l, ok := shard.At[p]
	delete(shard.At, p)
	shard.Unlock()
	if !ok {
		return false
	}
	if l.used != nil {
		used = append(*l.used, used...) // the entry is deleted, so the slice has no other user
	}
	l.from.Free(l.Block, used...)
	return true
}

// Block returns the live block that starts at p, for functions that take blocks.
func (x *LiveBlocks) Block(p driver.Pointer) (mem.Block, bool) {
	shard := x.blocks.Lock(p)
	defer shard.Unlock()
	l, ok := shard.At[p]
	return l.Block, ok
}

// Below returns the live block with the highest address that is not above p: the only one that p can lie in. p lies in
// it if p is less than Size bytes above Ptr. Below visits every block.
func (x *LiveBlocks) Below(p driver.Pointer) (mem.Block, bool) {
	l, ok := x.below(p)
	return l.Block, ok
}

func (x *LiveBlocks) below(p driver.Pointer) (nearest liveEntry, ok bool) {
	x.blocks.Each(func(at driver.Pointer, l liveEntry) {
		if at <= p && (!ok || at > nearest.Ptr) {
			nearest, ok = l, true
		}
	})
	return nearest, ok
}

// A LiveBlock is a live block, its allocator and its device.
type LiveBlock struct {
	mem.Block
	From   mem.Allocator
	Device driver.Device // the device of the memory; nil for blocks of an Addressed, which does not know it
}

// Holding returns the live block that p lies in: its start, or any address inside. For an address that is not the start
// of a block it visits every block, as Below does.
func (x *LiveBlocks) Holding(p driver.Pointer) (LiveBlock, bool) {
	shard := x.blocks.Lock(p)
	l, ok := shard.At[p]
	shard.Unlock()
	if !ok {
		if l, ok = x.below(p); !ok || uint64(p-l.Ptr) >= uint64(l.Size) {
			return LiveBlock{}, false
		}
	}
	return LiveBlock{l.Block, l.from.Allocator, l.from.dev}, true
}

// Len returns the number of live blocks.
func (x *LiveBlocks) Len() int {
	n := 0
	x.blocks.Each(func(driver.Pointer, liveEntry) { n++ })
	return n
}

// unknown describes an address at which no live block starts.
func (x *LiveBlocks) unknown(call string, p driver.Pointer) string {
	what := fmt.Sprintf("%s: %s of %#x, where no live block starts: ", x.name, call, uint64(p))
	b, ok := x.Below(p)
	if !ok {
		return what + "there is none at or below it"
	}
	offset := uint64(p - b.Ptr)
	if offset < uint64(b.Size) {
		return what + fmt.Sprintf("it lies inside the block of %d bytes at %#x, %d bytes in", b.Size, uint64(b.Ptr),
			offset)
	}
	return what + fmt.Sprintf("the nearest below is %d bytes at %#x, %d bytes short of it", b.Size, uint64(b.Ptr),
		offset-uint64(b.Size))
}

// replace records the live blocks of an allocator's pool after its state was restored. Blocks of the pool that were
// live before have no entries any more.
func (x *LiveBlocks) replace(from *source, d *mem.PoolDelta) {
	for _, b := range d.Freed {
		shard := x.blocks.Lock(b.Ptr)
		delete(shard.At, b.Ptr)
		shard.Unlock()
	}
	for _, b := range d.Live {
		shard := x.blocks.Lock(b.Ptr)
		shard.Put(b.Ptr, liveEntry{Block: b, from: from})
		shard.Unlock()
	}
}
