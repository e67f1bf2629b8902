//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A region is a range of addresses in use, by a block or a reservation. Start and end are multiples of the host's page
// size.
type region struct {
	start, end  uint64
	block       *block
	reservation bool
	maps        []*mapping // of a reservation, sorted by address
}

// Pages are physical memory. It exists until its handle is released and it is not mapped.
type pages struct {
	dev        *device
	size       int64
	fd         int
	offset     int64 // in fd
	own        bool  // fd holds nothing else, and is closed at the end
	handle     uint64
	handles    int  // how often the handle was returned and not released
	mapped     int  // number of mappings
	aliased    bool // there were several mappings at once
	exportable bool
	rdma       bool // network cards can reach it
	imported   bool // another process's memory: it does not count as used here
}

func memfd(name string) int {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	must(err)
	return fd
}

func (m *Machine) reserveSpace() {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(m.opts.Addresses), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	must(err)
	m.base = uint64(uintptr(p))
	m.end = m.base + uint64(m.opts.Addresses)
}

// mapAt maps physical memory at addresses.
func (m *Machine) mapAt(at uint64, p *pages, offset, size int64) {
	_, err := unix.MmapPtr(p.fd, p.offset+offset, pointer(at), uintptr(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED)
	must(err)
}

// unmapAt unmaps addresses, which stay reserved.
func (m *Machine) unmapAt(at uint64, size int64) {
	_, err := unix.MmapPtr(-1, 0, pointer(at), uintptr(size), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE|unix.MAP_FIXED)
	must(err)
}

// place makes a region at the lowest free addresses, so that freed addresses are reused soon.
func (m *Machine) place(size, align int64) *region {
	at := roundUp(m.base, align)
	i := 0
	for ; i < len(m.space); i++ {
		if at+uint64(size) <= m.space[i].start {
			break
		}
		at = roundUp(max(at, m.space[i].end), align)
	}
	if at+uint64(size) > m.end {
		return nil
	}
	r := &region{start: at, end: at + uint64(size)}
	m.space = slices.Insert(m.space, i, r)
	return r
}

// find returns the region around an address, or nil.
func (m *Machine) find(address uint64) *region {
	i, ok := slices.BinarySearchFunc(m.space, address, func(r *region, a uint64) int {
		switch {
		case r.end <= a:
			return -1
		case r.start > a:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return m.space[i]
}

// newPages creates physical memory, filled with noise. Shared memory has a separate file.
func (m *Machine) newPages(d *device, size int64, shared bool) (*pages, Result) {
	if size > m.opts.Memory-d.used {
		return nil, OutOfMemory
	}
	d.used += size
	p := &pages{dev: d, size: size, exportable: shared}
	if shared {
		p.fd, p.own = memfd(pagesName(d)), true
		key, _, err := keyOf(p.fd)
		must(err)
		m.shared[key] = p
	} else {
		p.fd, p.offset = d.fd, d.top
		d.top += size
	}
	must(unix.Ftruncate(p.fd, p.offset+size))
	fresh := noise()
	for at := int64(0); at < size; at += int64(len(fresh)) {
		_, err := unix.Pwrite(p.fd, fresh[:min(size-at, int64(len(fresh)))], p.offset+at)
		must(err)
	}
	return p, Success
}

// freeUnused frees physical memory without handles and mappings.
func (m *Machine) freeUnused(p *pages) {
	if p.handles > 0 || p.mapped > 0 {
		return
	}
	if !p.imported {
		p.dev.used -= p.size
	}
	if p.own {
		key, _, err := keyOf(p.fd)
		must(err)
		delete(m.shared, key)
		must(unix.Close(p.fd))
		return
	}
	must(unix.Fallocate(p.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, p.offset, p.size))
}

// noise returns the content of fresh memory: never zero, and always the same.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	x := uint64(0x9e3779b97f4a7c15)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x>>32) | 1
	}
	return b
})

func roundUp[T int64 | uint64](x T, to int64) T { return (x + T(to) - 1) / T(to) * T(to) }

func remove[T comparable](s []T, x T) []T {
	return slices.DeleteFunc(s, func(y T) bool { return x == y })
}

// arrayOf returns an array that a caller passed.
func arrayOf[T any](p *T, n uint64) []T { return unsafe.Slice(p, n) }
