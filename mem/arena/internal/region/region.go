// Package region provides the memory of an arena: one range of addresses with memory, and moves of bytes within it
// towards its start.
//
// # Data structures
//
// Without pages a region is one block of Device.Alloc, and this package only moves bytes in it. With pages it is a
// reservation of addresses. Slot i is the addresses [Base + i*Page, Base + (i+1)*Page), and a prefix of the slots has
// memory (backing.go). A region allocates additional areas, which count in neither Size nor Reserved. Open allocates
// the tables of compiled kernels: 17 KiB plus Size/2048, and for the runs Size/256, but at least the smaller of 256 KiB
// and Size/16, and at most 2 MiB. The first move that needs it allocates the bounce area.
//
// # Moving
//
// A list of moves slides runs of bytes down, in ascending order. There are three methods, each in a file of its own:
//
//   - kernel.go, move.cu: on devices with compiled kernels, one launch for up to 65,536 runs. A block of threads reads
//     a chunk of bytes into registers before the chunk is overwritten, so each byte is read once and written once,
//     whatever the shift.
//   - gokernel.go: on devices with Go kernels, the same for many small runs; runs over 4 MiB use the next method.
//   - copies.go: copies by the device, in pieces as long as the shift if it is 32 MiB or more, and otherwise through
//     the bounce area. The idea and the figure are those of BMEngine's memory_move.
//
// With pages of 128 MiB and more, whole pages whose shift is a multiple of the page are remapped instead of copied
// (remap.go).
//
// # Invariants
//
//   - The slots with memory are a prefix of all slots, unless unmapped is set.
//   - Until it is dropped, a page is either in exactly one slot or in spare.
//   - After a Move that failed after n moves, bytes and mappings are as if only those n moves had been requested: a
//     partial move is undone. If undoing fails, too, the bytes of one move are lost, and all later moves return that
//     error (lost). If pages could not be mapped again, Extend and Trim return it, too (unmapped).
//   - The areas are used in stream order, even by several streams (order.go).
//
// A Region has no lock and must be used by one goroutine at a time. It has no notion of blocks and does not know which
// streams use the memory: the caller of Move must make s wait for them.
package region

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
)

// Grain is the granularity in bytes of sizes and of addresses of moves, relative to Base.
const Grain = 512

// Options are the options of Open.
type Options struct {
	Size int64 // bytes of addresses, positive; rounded up to a multiple of Grain, and of Page
	Page int64 // bytes of a page, a multiple of the device's granularity; 0: one block of Device.Alloc

	// At, if not zero, is memory of Size bytes that the caller owns. No kernel is compiled for it; moves are copies.
	At driver.Pointer

	Bounce int64 // maximum size of the bounce area; 0: a sixteenth of Size, at least 64 KiB and at most 64 MiB
}

// A Region is a range of addresses with its memory.
type Region struct {
	dev     driver.Device
	base    driver.Pointer
	size    int64
	foreign bool    // the memory belongs to the caller (Options.At)
	last    [2]user // last users of the areas: the caller's stream, and kernel.ahead

	// With pages.
	vm    *peers.Memory // nil without pages
	page  int64
	slots []driver.Page // by slot, up to the highest ever mapped; a zero ID where no page is mapped
	ready int           // number of slots with memory
	pages int           // number of pages that exist
	spare []driver.Page // unmapped pages that could not be dropped

	lost     error // the error of a move that could not be undone
	unmapped error // the same, if it left slots without memory

	// How bytes are moved.
	remapFrom  int64 // page size from which remapping is cheaper than copying
	kernel     *kernel
	goKernels  bool
	bounce     driver.Pointer // 0 until needed
	bounceSize int64
}

// Open makes a region on dev. Without pages it has all its memory at once, and with pages none (see Extend). The error
// matches driver.ErrNoMemory if there is no room, driver.ErrUnsupported if pages are asked for and the device has none,
// and driver.ErrInvalid if their size is not a multiple of its granularity. It panics if the size is not positive.
func Open(dev driver.Device, o Options) (*Region, error) {
	if o.Size <= 0 || o.Page < 0 || o.Bounce < 0 || o.At != 0 && o.Page > 0 {
		panic(fmt.Sprintf("region: Open of %d bytes with pages of %d and a bounce area of %d", o.Size, o.Page,
			o.Bounce))
	}
	r := &Region{dev: dev, page: o.Page, remapFrom: remapFrom, size: roundUp(o.Size, Grain)}
	var err error
	switch {
	case o.At != 0:
		r.base, r.foreign = o.At, true
	case o.Page == 0:
		r.base, err = dev.Alloc(r.size)
	default:
		err = r.reserve()
	}
	if err != nil {
		return nil, fmt.Errorf("region: open with %s: %w", bytesize.Exact(r.size), err)
	}
	if r.bounceSize = roundUp(o.Bounce, Grain); o.Bounce == 0 {
		r.bounceSize = roundUp(min(max(r.size/16, 64<<10), 64<<20), Grain)
	}
	if err := r.loadKernel(); err != nil {
		return nil, errors.Join(fmt.Errorf("region: load the kernel that moves: %w", err), r.Close())
	}
	return r, nil
}

// reserve reserves the addresses of a region with pages.
func (r *Region) reserve() error {
	if r.vm = peers.Of(r.dev); r.vm == nil {
		return &driver.Error{
			Call: "VirtualMemory.Reserve", Code: driver.ErrUnsupported,
			Detail: "pages on a device without virtual memory",
		}
	}
	if g := r.dev.Info().Granularity; r.page%g != 0 {
		detail := fmt.Sprintf("pages of %d bytes are not a multiple of the granularity, %s", r.page, bytesize.Exact(g))
		return &driver.Error{Call: "VirtualMemory.Reserve", Code: driver.ErrInvalid, Detail: detail}
	}
	r.size = roundUp(r.size, r.page)
	var err error
	r.base, err = r.vm.Reserve(r.size)
	return err
}

// AddPeer lets work on dev use the region's present and future pages. Without pages it does nothing.
func (r *Region) AddPeer(dev driver.Device) error {
	if r.vm == nil {
		return nil
	}
	return r.vm.Add(dev)
}

// ExportPages returns the descriptors of the pages of a part of the region: see peers.Memory.Export. Without pages
// there are none.
func (r *Region) ExportPages(p driver.Pointer, size int64) (base driver.Pointer, pages []driver.PageFile, err error) {
	if r.vm == nil {
		return 0, nil, nil
	}
	return r.vm.Export(p, size)
}

// Base returns the first address.
func (r *Region) Base() driver.Pointer { return r.base }

// Size returns the number of bytes of addresses, a multiple of Grain. With pages it includes addresses without memory.
func (r *Region) Size() int64 { return r.size }

// Close frees all memory. The caller must have synchronized the users of the memory, because with pages Close does not
// wait for queued work. If memory cannot be freed, the error has the reason, and Close may be called again. A closed
// region has no addresses.
func (r *Region) Close() error {
	var errs []error
	note := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	}
	if r.vm != nil {
		note(r.giveBack(0))
		if r.base != 0 && len(errs) == 0 && note(r.vm.Release(r.base, r.size)) {
			r.base = 0
		}
	} else if r.base != 0 && (r.foreign || note(r.dev.Free(r.base))) {
		r.base = 0
	}
	if r.bounce != 0 && note(r.dev.Free(r.bounce)) {
		r.bounce = 0
	}
	if r.kernel != nil && note(r.kernel.close(r.dev)) {
		r.kernel = nil
	}
	if r.base == 0 {
		r.size = 0
	}
	return errors.Join(errs...)
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }
