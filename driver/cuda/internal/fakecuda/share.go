//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// An ipcHandle is CUipcMemHandle, 64 bytes. Another process of the same user opens the exporter's file through /proc.
// So a handle is valid while the exporter lives and keeps the memory; opened memory stays valid.
type ipcHandle [64]byte

const ipcMagic = 0x6563_6170_7366_6c61

// An ipcKey identifies memory that processes share by its file.
type ipcKey struct{ device, inode uint64 }

func keyOf(fd int) (ipcKey, int64, error) {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return ipcKey{}, 0, err
	}
	return ipcKey{uint64(s.Dev), s.Ino}, s.Size, nil
}

func (c *call) ipcGetMemHandle(h *ipcHandle, p uint64) Result {
	r := c.find(p)
	if h == nil || r == nil || r.block == nil || r.block.kind != fromAlloc || r.block.base != p ||
		r.block.ctx != c.ctx {
		return InvalidValue
	}
	c.moveToFile(r)
	key, _, err := keyOf(r.block.pages.fd)
	must(err)
	*h = ipcHandle{}
	for i, v := range []uint64{
		ipcMagic, uint64(os.Getpid()), uint64(r.block.pages.fd), uint64(r.block.size), r.end - r.start, p - r.start,
		key.inode, uint64(c.ctx.dev.ordinal),
	} {
		binary.LittleEndian.PutUint64(h[8*i:], v)
	}
	return Success
}

// moveToFile moves a block to a separate file, at the same addresses, so that the file contains no other memory.
func (m *Machine) moveToFile(r *region) {
	p := r.block.pages
	if p.own {
		return
	}
	own := &pages{dev: p.dev, size: p.size, fd: memfd(pagesName(p.dev)), own: true, mapped: 1}
	_, err := unix.Pwrite(own.fd, bytesAt(r.start, p.size), 0)
	must(err)
	m.mapAt(r.start, own, 0, p.size)
	p.dev.used += own.size // for settle
	p.mapped = 0
	m.freeUnused(p)
	r.block.pages = own
}

func (c *call) ipcOpenMemHandle(to *uint64, h *ipcHandle, flags uint32) Result {
	if to == nil || flags != 1 { // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS is not optional
		return InvalidValue
	}
	var words [8]uint64
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(h[8*i:])
	}
	pid, fd, size, whole, offset, inode, ordinal := words[1], words[2], words[3], words[4], words[5], words[6], words[7]
	dev, ok := c.device(int32(ordinal))
	switch {
	case words[0] != ipcMagic || !ok || whole == 0 || whole > uint64(c.opts.Addresses) || offset+size > whole:
		return InvalidValue
	case pid == uint64(os.Getpid()):
		return InvalidContext // the exporter cannot open its own handle
	case dev != c.ctx.dev && c.opts.Unlinked:
		return PeerAccessUnsupported
	}
	mine, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return InvalidHandle // the exporter has ended
	}
	key, length, err := keyOf(mine)
	if err != nil || key.inode != inode || length != int64(whole) {
		must(unix.Close(mine))
		return InvalidHandle // the exporter has freed it
	}
	for _, r := range c.space {
		if b := r.block; b != nil && b.kind == fromPeer && b.key == key && b.ctx == c.ctx {
			must(unix.Close(mine))
			b.opens++
			return out(to, b.base)
		}
	}
	r := c.place(int64(whole), c.page)
	if r == nil {
		must(unix.Close(mine))
		return OutOfMemory
	}
	p := &pages{dev: dev, size: int64(whole), fd: mine, own: true, imported: true, mapped: 1}
	c.mapAt(r.start, p, 0, p.size)
	r.block = &block{
		base: r.start + offset, size: int64(size), ctx: c.ctx, pages: p, kind: fromPeer, opens: 1, key: key,
	}
	return out(to, r.block.base)
}

// ipcCloseMemHandle waits for all work queued in the context.
func (c *call) ipcCloseMemHandle(p uint64) Result {
	r, res := c.ownBlock(p)
	if res != Success {
		return res
	}
	if r.block.kind != fromPeer {
		return InvalidValue
	}
	if res := c.drain(c.ctx); res != Success {
		return res
	}
	if r.block.opens--; r.block.opens == 0 {
		c.freeBlock(r)
	}
	return Success
}

// pagesName returns the name of a file of pages. An importer recognizes the pages and their device by it.
func pagesName(d *device) string { return fmt.Sprintf("%s%d", pagesPrefix, d.ordinal) }

const pagesPrefix = "fakecuda pages of device "

// memExportToShareableHandle returns a descriptor that programs started by this one would inherit, unless the caller
// prevents it.
func (c *call) memExportToShareableHandle(fd *int32, h uint64, kind uint32, flags uint64) Result {
	p, r := c.pagesOf(h)
	switch {
	case r != Success:
		return r
	case fd == nil || flags != 0 || kind != posixFD || !p.exportable:
		return InvalidValue
	}
	dup, err := unix.Dup(p.fd)
	if err != nil {
		return Unknown
	}
	return out(fd, int32(dup))
}

// memImportFromShareableHandle does not close the descriptor.
func (c *call) memImportFromShareableHandle(h *uint64, fd uint64, kind uint32) Result {
	if h == nil || kind != posixFD || fd > 1<<30 {
		return InvalidValue
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	name, ok := strings.CutPrefix(name, "/memfd:"+pagesPrefix)
	if err != nil || !ok {
		return InvalidValue
	}
	var ordinal int32
	if n, _ := fmt.Sscanf(name, "%d", &ordinal); n != 1 {
		return InvalidValue
	}
	d, r := c.deviceAt(location{1, ordinal})
	if r != Success {
		return r
	}
	key, size, err := keyOf(int(fd))
	if err != nil {
		return InvalidValue
	}
	if p := c.shared[key]; p != nil { // the process has these pages already
		return out(h, c.newAllocationHandle(p))
	}
	mine, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Unknown
	}
	p := &pages{dev: d, size: size, fd: mine, own: true, imported: true, exportable: true}
	c.shared[key] = p
	return out(h, c.newAllocationHandle(p))
}
