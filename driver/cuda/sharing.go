//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// sharing implements driver.Sharing. The handles of Export are in sharinghandle.go.
type sharing struct{ d *device }

func (d *device) Sharing() driver.Sharing { return sharing{d} }

// A sharedSet counts, for each allocation of another process, the imports that were not forgotten. libcuda returns the
// same address for the same handle and counts, too.
type sharedSet struct {
	mu    sync.Mutex // held while libcuda opens and closes handles; taken before ranges.mu
	holds map[driver.Pointer]int
}

// Export calls cuIpcGetMemHandle and adds the data that Import checks.
func (s sharing) Export(p driver.Pointer) ([]byte, error) {
	const call = "Sharing.Export"
	if err := s.d.enter(call); err != nil {
		return nil, err
	}
	defer s.d.leave()
	size, err := s.exportable(call, p)
	if err != nil {
		return nil, err
	}
	h, err := s.newHandle(call, size)
	if err != nil {
		return nil, err
	}
	var r cu.Result
	if h.Driver, r = s.d.lib.IPCGetMemHandle(uint64(p)); r != cu.Success {
		return nil, s.d.fail(call, r, "the block of %s at %#x", bytesize.Format(size), p)
	}
	return h.bytes(handleMagic), nil
}

// exportable returns the size of the block at p.
func (s sharing) exportable(call string, p driver.Pointer) (int64, error) {
	r := &s.d.known
	r.mu.RLock()
	defer r.mu.RUnlock()
	if i := r.t.Find(p); i >= 0 {
		switch e := &r.t[i]; {
		case e.Value.kind == reserved:
			return 0, &driver.Error{
				Call: call, Code: driver.ErrUnsupported,
				Detail: fmt.Sprintf("%#x is virtual memory: share pages of CreateShared, by ExportPage", p),
			}
		case e.Value.kind == allocated && e.At == p:
			return e.Size, nil
		}
	}
	return 0, invalidError(call, "%#x is not the start of a block from Alloc", p)
}

// Like libcuda, Import also opens a handle of a block that its exporter has freed, if a process still has it open.
func (s sharing) Import(b []byte) (driver.Pointer, int64, error) {
	const call = "Sharing.Import"
	if err := s.d.enter(call); err != nil {
		return 0, 0, err
	}
	defer s.d.leave()
	h, err := parseHandle(handleMagic, b)
	if err == nil && h.Size <= 0 {
		err = fmt.Errorf("a handle of %d bytes of memory", h.Size)
	}
	if err != nil {
		return 0, 0, invalidError(call, "%v", err)
	}
	if err := s.foreign(call, h); err != nil {
		return 0, 0, err
	}
	t := &s.d.shared
	t.mu.Lock()
	defer t.mu.Unlock()
	at, r := s.d.lib.IPCOpenMemHandle(h.Driver)
	if r != cu.Success {
		return 0, 0, s.refused(call, r, "a block of %s of process %d, if that still has it", bytesize.Format(h.Size),
			h.Process)
	}
	p := driver.Pointer(at)
	if t.holds == nil {
		t.holds = map[driver.Pointer]int{}
	}
	if t.holds[p]++; t.holds[p] == 1 {
		s.d.known.add(p, h.Size, imported)
	}
	return p, h.Size, nil
}

// refused is fail for a handle from another process. libcuda has several results for an invalid or outdated handle, and
// some are unspecific (a failed call of the operating system). They all become ErrInvalid.
func (s sharing) refused(call string, r cu.Result, format string, args ...any) error {
	err := s.d.fail(call, r, format, args...)
	for _, other := range []error{driver.ErrNoMemory, driver.ErrLost, driver.ErrUnsupported, driver.ErrClosed} {
		if errors.Is(err, other) {
			return err
		}
	}
	return &driver.Error{Call: call, Code: driver.ErrInvalid, Detail: err.(*driver.Error).Detail}
}

// Forget waits for queued work itself, because libcuda does not guarantee to wait.
func (s sharing) Forget(p driver.Pointer) error {
	const call = "Sharing.Forget"
	if err := s.d.enter(call); err != nil {
		return err
	}
	defer s.d.leave()
	if err := s.d.drain(call); err != nil {
		return err
	}
	t := &s.d.shared
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds[p] == 0 {
		return invalidError(call, "%#x is not what Import returned", p)
	}
	var size int64
	last := t.holds[p] == 1
	if last {
		size, _ = s.d.known.remove(p, imported)
	}
	if r := s.d.lib.IPCCloseMemHandle(uint64(p)); r != cu.Success {
		if last {
			s.d.known.add(p, size, imported)
		}
		return s.d.fail(call, r, "%#x", p)
	}
	if t.holds[p]--; t.holds[p] == 0 {
		delete(t.holds, p)
	}
	return nil
}

// closeShared closes the imports that callers did not forget.
func (d *device) closeShared() cu.Result {
	first := cu.Success
	for p, n := range d.shared.holds {
		d.known.remove(p, imported)
		for range n {
			if r := d.lib.IPCCloseMemHandle(uint64(p)); first == cu.Success {
				first = r
			}
		}
	}
	d.shared.holds = nil
	return first
}

// CreateShared creates a page whose handle can be exported as a file.
func (s sharing) CreateShared(size int64) (driver.Page, error) {
	const call = "Sharing.CreateShared"
	if err := s.pages(call, size); err != nil {
		return driver.Page{}, err
	}
	if err := s.d.enter(call); err != nil {
		return driver.Page{}, err
	}
	defer s.d.leave()
	return s.d.createPage(call, size, cu.HandleFD)
}

// pages returns an error unless the device has virtual memory and size is a multiple of the granularity.
func (s sharing) pages(call string, size int64) error {
	if s.d.info.Granularity == 0 {
		return &driver.Error{Call: call, Code: driver.ErrUnsupported, Detail: "the device has no virtual memory"}
	}
	return s.d.whole(call, size)
}

// ExportPage blocks the start of programs until the descriptor is marked close-on-exec.
func (s sharing) ExportPage(p driver.Page) (*os.File, error) {
	const call = "Sharing.ExportPage"
	if err := s.d.enter(call); err != nil {
		return nil, err
	}
	defer s.d.leave()
	h, err := s.d.handleOf(call, p)
	if err != nil {
		return nil, err
	}
	syscall.ForkLock.RLock()
	fd, r := s.d.lib.MemExportFD(h)
	if r == cu.Success {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if r != cu.Success {
		return nil, s.d.fail(call, r, "page %d of %s, which CreateShared must have made", p.ID, bytesize.Format(p.Size))
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("cuda page %d", p.ID)), nil
}

// ImportPage maps the page temporarily to check its size: libcuda does not report the size, but refuses to map more
// than the page has.
func (s sharing) ImportPage(f *os.File, size int64) (driver.Page, error) {
	const call = "Sharing.ImportPage"
	if err := s.pages(call, size); err != nil {
		return driver.Page{}, err
	}
	if err := s.d.enter(call); err != nil {
		return driver.Page{}, err
	}
	defer s.d.leave()
	raw, err := f.SyscallConn()
	if err != nil {
		return driver.Page{}, invalidError(call, "%v", err)
	}
	var h cu.MemHandle
	var r cu.Result
	if err := raw.Control(func(fd uintptr) { h, r = s.d.lib.MemImportFD(int(fd)) }); err != nil {
		return driver.Page{}, invalidError(call, "%v", err)
	}
	if r != cu.Success {
		return driver.Page{}, s.refused(call, r, "the file %s", f.Name())
	}
	if err := s.tryMap(call, h, size); err != nil {
		_ = s.d.lib.MemRelease(h)
		return driver.Page{}, err
	}
	return s.d.adoptPage(page{handle: h, size: size, imported: true}), nil
}

// tryMap returns an error unless size bytes of h can be mapped.
func (s sharing) tryMap(call string, h cu.MemHandle, size int64) error {
	lib := s.d.lib
	at, r := lib.MemAddressReserve(size, s.d.info.Granularity)
	if r != cu.Success {
		return s.d.fail(call, r, "%s of addresses", bytesize.Format(size))
	}
	mapped := lib.MemMap(at, size, h)
	if mapped == cu.Success {
		r = lib.MemUnmap(at, size)
	}
	if freed := lib.MemAddressFree(at, size); r == cu.Success {
		r = freed
	}
	if mapped == cu.NotSupported { // the result for a size above that of the page
		return invalidError(call, "%s is not the size of the page: %s", bytesize.Format(size), lib.Describe(mapped))
	}
	if mapped != cu.Success {
		return s.refused(call, mapped, "map %s of the page", bytesize.Format(size))
	}
	return s.d.fail(call, r, "unmap the page again")
}
