// Package region is the memory under an arena: one range of addresses with memory behind it, and the moving of bytes
// within it towards its start.
//
// # Data structures
//
// Without pages a region is one block of Device.Alloc, and nothing but moving happens here. With pages it is a
// reservation of addresses; slot i of it is the addresses [Base + i*Page, Base + (i+1)*Page), and memory stands behind
// a prefix of the slots (backing.go). Beside the region lie areas of its own, which count in neither Size nor Reserved:
// the tables of compiled kernels, from Open on (17 KiB and a 4096th part of Size, and for runs a 256th part, at least
// 256 KiB or, where that is less, a 32nd part, at most 2 MiB), and the bounce area, from the first move that needs it.
//
// # Moving
//
// A list of moves slides runs of bytes down, in ascending order. Three ways do it, each in a file of its own:
//
//   - kernel.go, move.cu: where compiled code runs, one launch for up to 131,072 runs. A block of threads has a chunk of
//     the bytes in registers before anything is written over them: each byte is read once and written once, whatever the
//     shift.
//   - gokernel.go: where kernels are Go functions, the same for many small runs; runs over 4 MiB take the next way.
//   - copies.go: copies by the device, in pieces as long as the shift where that is 32 MiB or more, and through the bounce
//     area where it is less. The idea and the figure are those of BMEngine's memory_move.
//
// With pages of 128 MiB and more, whole pages whose shift is a multiple of the page are mapped elsewhere instead of
// copied (remap.go).
//
// # Invariants
//
//   - Slots with memory come first, none between them is without, unless lost is set.
//   - A page is in one slot, or in spare: never in both, never in none until it is dropped.
//   - After a Move that failed after n moves, bytes and memory are as though it had been asked for those n alone. What is
//     half done is undone. If that fails too, the bytes of one move are lost: the region says so for good (lost).
//   - The areas are used in stream order, also by one stream after another (order.go).
//
// One goroutine at a time uses a Region: it has no lock. It knows no blocks, places nothing, and does not know which
// streams use the memory: the caller of Move has made s wait for them.
package region

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
)

// Grain is what addresses and sizes of moves are multiples of, in bytes, counted from Base.
const Grain = 512

// Options says what Open makes.
type Options struct {
	Size int64 // bytes of addresses, positive; rounded up to a multiple of Grain, and of Page
	Page int64 // bytes of a page, a multiple of the device's granularity; 0: one block of Device.Alloc

	// At, if not zero, is memory of Size bytes that is the caller's and stays so. No kernel is compiled for it: what
	// moves there is copied.
	At driver.Pointer

	Bounce int64 // bytes of the bounce area at most; 0: a sixteenth of Size, at least 64 KiB and at most 64 MiB
}

// A Region is a range of addresses and the memory behind it.
type Region struct {
	dev     driver.Device
	base    driver.Pointer
	size    int64
	foreign bool // the memory is another's
	last    user // of the areas

	// With pages.
	vm    *peers.Memory // nil without
	page  int64
	slots []driver.Page // by position, as far as any ever had memory; a zero ID where nothing is mapped
	ready int           // slots with memory, from the first on
	pages int           // created and not dropped
	spare []driver.Page // mapped nowhere: kept because giving them back failed
	lost  error         // what could not be undone, for good

	// How bytes are moved.
	remapFrom  int64 // bytes of a page from which remapping is cheaper than copying
	kernel     *kernel
	goKernels  bool
	bounce     driver.Pointer // 0 until it is needed
	bounceSize int64
}

// Open makes a region on dev. Without pages it has all its memory at once, and with pages none (see Extend). The error
// matches driver.ErrNoMemory if there is no room, driver.ErrUnsupported if pages are asked for and the device has none,
// and driver.ErrInvalid if their size is no multiple of its granularity. It panics on a size that is not positive.
func Open(dev driver.Device, o Options) (*Region, error) {
	if o.Size <= 0 || o.Page < 0 || o.Bounce < 0 || o.At != 0 && o.Page > 0 {
		panic(fmt.Sprintf("region: Open of %d bytes with pages of %d and a bounce area of %d", o.Size, o.Page, o.Bounce))
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

// reserve gets the addresses of a region with pages.
func (r *Region) reserve() error {
	if r.vm = peers.Of(r.dev); r.vm == nil {
		return &driver.Error{Call: "VirtualMemory.Reserve", Code: driver.ErrUnsupported, Detail: "pages on a device without"}
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

// AddPeer lets work on dev use the region's pages, those that it has and those that it will get. Without pages it does
// nothing.
func (r *Region) AddPeer(dev driver.Device) error {
	if r.vm == nil {
		return nil
	}
	return r.vm.Add(dev)
}

// ExportPages returns the descriptors of the pages behind some of the region: see peers.Memory.Export. Without pages
// there are none.
func (r *Region) ExportPages(p driver.Pointer, size int64) (base driver.Pointer, pages []driver.PageFile, err error) {
	if r.vm == nil {
		return 0, nil, nil
	}
	return r.vm.Export(p, size)
}

// Base is the first address.
func (r *Region) Base() driver.Pointer { return r.base }

// Size is the bytes of addresses, a multiple of Grain: with pages also of places that have no memory yet.
func (r *Region) Size() int64 { return r.size }

// Close frees everything. The caller has synchronized the users of the memory: with pages, Close does not wait for
// queued work. What cannot be given back stays, the error says why, and Close may be called again. A region that is
// closed has no addresses.
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
