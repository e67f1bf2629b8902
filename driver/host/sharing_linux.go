package host

import (
	"fmt"
	"os"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/spans"
	"golang.org/x/sys/unix"
)

// sharing implements driver.Sharing. Shared memory is a sealed file, which the kernel keeps until no process has it
// open or mapped: either end may die first. It needs /proc.
//
// A handle works for processes of the same user, in the same namespace of process numbers, while the exporter lives and
// has not freed the block. Imported memory does not count as allocated by this device, and cannot be exported.
type sharing struct{ d *device }

// Sharing is nil without virtual memory.
func (d *device) Sharing() driver.Sharing {
	if d.physical == nil {
		return nil
	}
	return sharing{d}
}

// Export moves the block into a file of its own, at the same address, with all streams of the device stopped; exporting
// it again returns the same handle. Work that other devices do on the block must be done before. Each exported block
// holds a descriptor until it is freed.
func (s sharing) Export(p driver.Pointer) ([]byte, error) {
	const call = "Sharing.Export"
	s.d.exporting.Lock()
	defer s.d.exporting.Unlock()
	if handle, err := s.exported(call, p); err != nil || handle != nil {
		return handle, err
	}
	defer s.d.stall()()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	i, err := s.exportable(call, p)
	if err != nil {
		return nil, err
	}
	b := &s.d.blocks[i]
	if b.Value.export, err = moveOut(b.At, b.Size, s.d.place); err != nil {
		return nil, systemError(call, fmt.Sprintf("%s at %#x", bytesize.Format(b.Size), p), err)
	}
	return slices.Clone(b.Value.export.handle), nil
}

// exportable returns the index of the block at p, which Alloc returned. d.mu is held.
func (s sharing) exportable(call string, p driver.Pointer) (int, error) {
	if s.d.closed {
		return 0, closedError(call)
	}
	i := s.d.blocks.Starting(p)
	if i < 0 || s.d.blocks[i].Value.leaving || s.d.blocks[i].Value.imported {
		return 0, invalidError(call, "%#x is not the start of a block from Alloc", p)
	}
	return i, nil
}

// exported returns the handle of the block at p, or nil if it has none yet.
func (s sharing) exported(call string, p driver.Pointer) ([]byte, error) {
	s.d.mu.RLock()
	defer s.d.mu.RUnlock()
	i, err := s.exportable(call, p)
	if err != nil || s.d.blocks[i].Value.export == nil {
		return nil, err
	}
	return slices.Clone(s.d.blocks[i].Value.export.handle), nil
}

// moveOut copies the memory at p into a sealed file, and maps the file at p. Nothing else touches the memory during the
// call.
func moveOut(p driver.Pointer, size int64, place placement) (*export, error) {
	f, err := newSealed(blockName, size, place)
	if err != nil {
		return nil, err
	}
	handle, err := newHandle(handleMagic, f)
	if err == nil {
		err = f.write(view(p, size))
	}
	if err == nil {
		err = f.mapAt(p, 0, size)
	}
	if err != nil {
		_ = f.close()
		return nil, err
	}
	return &export{handle: handle, memory: f}, nil
}

// write writes b to the file, except pages of zeros: they are zero already, and writing them would take memory.
func (f *memfd) write(b []byte) error {
	zero := make([]byte, 64<<10)
	for at := 0; at < len(b); {
		part := b[at:min(at+len(zero), len(b))]
		if string(part) == string(zero[:len(part)]) {
			at += len(part)
			continue
		}
		n, err := unix.Pwrite(f.fd, part, int64(at))
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		at += n
	}
	return nil
}

// Import fails with ErrInvalid in the process that exported the block, as cuIpcOpenMemHandle does.
func (s sharing) Import(handle []byte) (driver.Pointer, int64, error) {
	const call = "Sharing.Import"
	h, err := parseHandle(handleMagic, handle)
	if err != nil {
		return 0, 0, invalidError(call, "%v", err)
	}
	f, err := h.open()
	if err != nil {
		return 0, 0, invalidError(call, "%v", err)
	}
	defer f.close()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.closed {
		return 0, 0, closedError(call)
	}
	raw, err := unix.MmapPtr(f.fd, 0, nil, uintptr(h.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, 0, systemError(call, bytesize.Format(h.Size), err)
	}
	p := driver.Pointer(uintptr(raw))
	s.d.blocks.Insert(spans.Entry[block]{At: p, Size: h.Size, Value: block{imported: true}})
	return p, h.Size, nil
}

func (s sharing) Forget(p driver.Pointer) error {
	return s.d.free("Sharing.Forget", "Import", p, true)
}

// CreateShared makes a page that holds a descriptor of its own until it is dropped and mapped nowhere.
func (s sharing) CreateShared(size int64) (driver.Page, error) {
	const call = "Sharing.CreateShared"
	v := virtualMemory(s)
	if err := v.openWhole(call, size); err != nil {
		return driver.Page{}, err
	}
	defer s.d.mu.Unlock()
	if err := s.d.reserve(call, size); err != nil {
		return driver.Page{}, err
	}
	f, err := newSealed(pageName, size, s.d.place)
	if err != nil {
		s.d.used -= size
		return driver.Page{}, systemError(call, bytesize.Format(size), err)
	}
	return s.d.addPage(page{Page: driver.Page{Size: size}, memory: f, own: true}), nil
}

// ExportPage returns a descriptor of the page's file; imported pages can be exported too.
func (s sharing) ExportPage(p driver.Page) (*os.File, error) {
	const call = "Sharing.ExportPage"
	v := virtualMemory(s)
	if err := v.open(call); err != nil {
		return nil, err
	}
	defer s.d.mu.Unlock()
	pg, err := v.live(call, p)
	if err != nil {
		return nil, err
	}
	if !pg.own {
		return nil, invalidError(call, "page %d was not made by CreateShared", p.ID)
	}
	fd, err := duplicate(pg.memory.(*memfd).fd)
	if err != nil {
		return nil, systemError(call, fmt.Sprintf("page %d", p.ID), err)
	}
	return os.NewFile(uintptr(fd), pageName), nil
}

// ImportPage works in the process that exported the page too: it is another page with the same memory.
func (s sharing) ImportPage(f *os.File, size int64) (driver.Page, error) {
	const call = "Sharing.ImportPage"
	v := virtualMemory(s)
	if err := v.whole(call, size); err != nil {
		return driver.Page{}, err
	}
	fd, err := descriptorOf(f)
	if err != nil {
		return driver.Page{}, invalidError(call, "%v", err)
	}
	memory := &memfd{fd: fd, end: size}
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil {
		err = isSealed(fd, link, pageName, size)
	}
	if err != nil {
		_ = memory.close()
		return driver.Page{}, invalidError(call, "%v", err)
	}
	if err := v.open(call); err != nil {
		_ = memory.close()
		return driver.Page{}, err
	}
	defer s.d.mu.Unlock()
	return s.d.addPage(page{Page: driver.Page{Size: size}, memory: memory, own: true, imported: true}), nil
}

// descriptorOf returns a descriptor of f that is the caller's.
func descriptorOf(f *os.File) (int, error) {
	raw, err := f.SyscallConn() // fails for nil and for closed files
	if err != nil {
		return 0, err
	}
	fd, failed := -1, error(nil)
	if err := raw.Control(func(of uintptr) { fd, failed = duplicate(int(of)) }); err != nil {
		return 0, err
	}
	return fd, failed
}
