package layer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Guard allocator detects writes outside blocks. See NewGuard.
type Guard struct {
	inner   mem.Allocator
	opts    GuardOptions
	pattern []byte    // contents of a red zone
	buffers sync.Pool // of *[]byte with the same length
	blockTable[guardedBlock]
	unchecked atomic.Int64
}

// GuardOptions are options of NewGuard. The zero value is valid.
type GuardOptions struct {
	// Zone is the length of a red zone in bytes; 0 means 256. Blocks stay aligned if it is a multiple of the alignment
	// of the allocator below. A negative one panics.
	Zone int64

	// Damaged is called for a block that Free finds damaged, before the memory is freed. If it is nil, Free panics
	// after it has freed the memory.
	Damaged func(*Damage)
}

// What Guard writes. Freed memory reads as not-a-number in every floating-point type.
const (
	redZone = 0xA5
	poison  = 0xFF
)

// A guardedBlock has the data for checking a block's red zones.
type guardedBlock struct {
	stream  driver.Stream
	written bool
}

// NewGuard returns an allocator that puts a red zone before and after each block of a: bytes that no correct program
// writes. Free and Check check them. Free fills the block with not-a-number values, so that later reads are visible.
// Blocks have exactly the requested size: a write of one byte too many is detected.
//
// It is for debugging. Alloc costs two copies of a zone to the device. Free waits for the work queued on the block's
// stream and on those in used, copies both zones back, and queues a Fill. Each block takes the memory of two more
// zones.
//
// If the device fails, or cannot wait because a stream captures, a block is allocated or freed without a check, and
// Unchecked counts it.
func NewGuard(a mem.Allocator, opts GuardOptions) *Guard {
	opts.Zone = cmp.Or(opts.Zone, 256)
	if opts.Zone < 0 || opts.Zone > 1<<30 {
		panic(fmt.Sprintf("layer: Guard with red zones of %d bytes", opts.Zone))
	}
	g := &Guard{inner: a, opts: opts, blockTable: blockTable[guardedBlock]{name: "Guard"}}
	g.pattern = bytes.Repeat([]byte{redZone}, int(opts.Zone))
	g.buffers.New = func() any { b := make([]byte, opts.Zone); return &b }
	return g
}

// Alloc implements mem.Allocator. The error is that of the allocator below, or the device's error in writing the red
// zones.
func (g *Guard) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return g.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (g *Guard) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	if size <= 0 {
		return mem.AllocWith(g.inner, s, size, o)
	}
	if size+2*g.opts.Zone < size {
		return mem.Block{}, errTooLarge(size)
	}
	b, err := mem.AllocWith(g.inner, s, size+2*g.opts.Zone, o)
	if err != nil {
		return mem.Block{}, err
	}
	ptr := b.Ptr + driver.Pointer(g.opts.Zone)
	// Use CopyIn, which fails during a capture. Fill would only be recorded, and the unwritten zone would look damaged.
	err = s.CopyIn(b.Ptr, g.pattern)
	if err == nil {
		err = s.CopyIn(ptr+driver.Pointer(size), g.pattern)
	}
	if err != nil && !errors.Is(err, driver.ErrCapturing) {
		g.inner.Free(b)
		return mem.Block{}, fmt.Errorf("layer: Guard: paint the red zones: %w", err)
	}
	return g.add(s.ID(), size, mem.Block{Ptr: ptr, Size: size}, b, guardedBlock{s, err == nil}), nil
}

// Free implements mem.Allocator. It panics if a red zone was written to, unless GuardOptions.Damaged is set.
func (g *Guard) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	rec := g.remove(b, used)
	damage, err := g.inspect(&rec, used)
	if err == nil { // all work on the block is done
		err = rec.value.stream.Fill(b.Ptr, poison, b.Size)
	}
	if err != nil {
		g.unchecked.Add(1)
	}
	if damage != nil && g.opts.Damaged != nil {
		g.opts.Damaged(damage)
	}
	g.inner.Free(rec.below, used...)
	if damage != nil && g.opts.Damaged == nil {
		panic(damage.Error())
	}
}

// inspect reads the red zones of a block after the work queued on its stream, on used and on the stream that moved it.
func (g *Guard) inspect(rec *blockEntry[guardedBlock], used []driver.Stream) (*Damage, error) {
	if rec.mover != nil {
		used = append(slices.Clip(used), rec.mover)
	}
	for _, u := range used { // Sync, since WaitFor would join the block's stream to a capture of u
		if err := u.Sync(context.Background()); err != nil && !errors.Is(err, driver.ErrClosed) {
			return nil, err
		}
	}
	rec.mover = nil
	if !rec.value.written {
		return nil, driver.ErrCapturing
	}
	zone := g.buffers.Get().(*[]byte)
	defer g.buffers.Put(zone)
	for i, at := range [2]driver.Pointer{rec.below.Ptr, rec.block.Ptr + driver.Pointer(rec.block.Size)} {
		if err := rec.value.stream.CopyOut(*zone, at); err != nil {
			return nil, err
		}
		if bytes.Equal(*zone, g.pattern) {
			continue
		}
		first, n := int64(-1), 0
		for j, c := range *zone {
			if c != redZone {
				if n++; first < 0 || i == 0 {
					first = int64(j) // in the zone before the block: the byte next to the block
				}
			}
		}
		return &Damage{
			Block: rec.block, Stream: rec.value.stream.ID(), Bytes: n, Got: (*zone)[first],
			Offset: int64(at-rec.block.Ptr) + first,
		}, nil
	}
	return nil, nil
}

// Check checks the red zones of all live blocks, after the work queued on their own streams is done. It does not wait
// for other streams. The error joins a *Damage for each damaged block and the device's errors. Calls for blocks of the
// same streams wait until Check returns.
func (g *Guard) Check() error {
	var errs []error
	g.each(func(rec *blockEntry[guardedBlock]) {
		if rec.moving || !rec.value.written {
			return
		}
		damage, err := g.inspect(rec, nil)
		if damage != nil {
			err = damage
		}
		if err != nil {
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}

// Unchecked returns how many blocks were freed without a check of their red zones, or without being filled.
func (g *Guard) Unchecked() int64 { return g.unchecked.Load() }

// Movable implements mem.Mover. The red zones move with the block.
func (g *Guard) Movable(b mem.Block, h mem.Holder) bool {
	return g.movable(b, h, func(guardedBlock) mem.Allocator { return g.inner })
}

// Unwrap implements mem.Wrapper. A snapshot found below has the blocks with their red zones.
func (g *Guard) Unwrap() mem.Allocator { return g.inner }

// A Damage describes a block with a detected write outside its bounds.
type Damage struct {
	Block  mem.Block
	Stream driver.StreamID // the stream of its allocation
	Offset int64           // from the block's start, of the changed byte next to the block; negative: before it
	Got    byte            // its value now
	Bytes  int             // changed in that red zone
}

func (d *Damage) Error() string {
	return fmt.Sprintf("layer: Guard: a write outside of a block of %d bytes at %#x of stream %d: %d bytes changed, "+
		"the nearest to the block at %+d from its start, which is %#02x now", d.Block.Size, uint64(d.Block.Ptr),
		d.Stream, d.Bytes, d.Offset, d.Got)
}
