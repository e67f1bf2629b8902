package raw

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
)

// A handle of pages is pagesMagic, the length of a socket's name in a byte, the name, and a key for the server there.
var pagesMagic = []byte("ashlarp1")

func isPagesHandle(handle []byte) bool { return bytes.HasPrefix(handle, pagesMagic) }

// pagesHandle returns the handle of the pages of a block.
func pagesHandle(b mem.Block) ([]byte, error) {
	name, key, err := serving.keyOf(b)
	if err != nil {
		return nil, fmt.Errorf("raw: IPCHandle: %w", err)
	}
	return append(append(append(bytes.Clone(pagesMagic), byte(len(name))), name...), key...), nil
}

// pagesOf gets the pages of a handle from the process that made it. The caller closes the files.
func pagesOf(handle []byte) ([]driver.PageFile, error) {
	rest := handle[len(pagesMagic):]
	if len(rest) == 0 || rest[0] == 0 || len(rest)-1 <= int(rest[0]) {
		return nil, invalidHandle("not a handle of pages")
	}
	end := 1 + int(rest[0])
	pages, err := fetchPages(string(rest[1:end]), rest[end:])
	if err != nil && !errors.Is(err, driver.ErrUnsupported) {
		err = invalidHandle(err.Error())
	}
	return pages, err
}

func invalidHandle(detail string) error {
	return &driver.Error{Call: "raw.OpenIPCHandle", Code: driver.ErrInvalid, Detail: detail}
}

// openPages maps the pages of a handle next to each other.
func openPages(dev driver.Device, handle []byte) (base driver.Pointer, size int64, closeIt func() error, err error) {
	vm := importsOf(dev)
	if vm == nil {
		return 0, 0, nil, fmt.Errorf("raw: OpenIPCHandle: %s %d has no virtual memory: %w", dev.Info().Driver,
			dev.Info().Ordinal, driver.ErrUnsupported)
	}
	files, err := pagesOf(handle)
	if err != nil {
		return 0, 0, nil, err
	}
	defer func() {
		for _, f := range files {
			f.File.Close()
		}
	}()
	o := &openedPages{dev: dev, vm: vm}
	if err := o.open(files); err != nil {
		return 0, 0, nil, errors.Join(fmt.Errorf("raw: OpenIPCHandle: %w", err), o.giveBack())
	}
	return o.base, o.size, o.close, nil
}

// openedPages are imported pages of another process. It records the resources that are left to free, so that a failed
// call can be repeated.
type openedPages struct {
	dev      driver.Device
	vm       *peers.Memory
	fence    driver.Pointer // memory to free in close, which waits for all work; 0 if there was none left for it
	base     driver.Pointer
	size     int64
	pages    []driver.Page
	reserved bool
	mapped   bool
	closed   bool
}

func (o *openedPages) open(files []driver.PageFile) (err error) {
	for _, f := range files {
		page, err := o.dev.Sharing().ImportPage(f.File, f.Size)
		if err != nil {
			return err
		}
		o.pages = append(o.pages, page)
		if o.size += f.Size; o.size <= 0 {
			return invalidHandle("the total size of the pages overflows")
		}
	}
	if o.base, err = o.vm.Reserve(o.size); err != nil {
		return err
	}
	o.reserved = true
	if err := o.vm.Map(o.base, o.pages...); err != nil {
		return err
	}
	o.mapped = true
	o.fence, err = o.dev.Alloc(1)
	if errors.Is(err, driver.ErrNoMemory) {
		err = nil
	}
	return err
}

// close frees the pages after the work queued on the device is done. Unmapping does not wait for work, but freeing
// memory does.
func (o *openedPages) close() error {
	if o.closed {
		return invalidHandle(fmt.Sprintf("the memory opened at %#x was closed already", uint64(o.base)))
	}
	if o.mapped && o.fence == 0 {
		p, err := o.dev.Alloc(1)
		if err != nil {
			return fmt.Errorf("raw: wait for the device: %w", err)
		}
		o.fence = p
	}
	err := o.giveBack()
	o.closed = err == nil
	return err
}

func (o *openedPages) giveBack() error {
	if o.fence != 0 {
		if err := o.dev.Free(o.fence); err != nil {
			return fmt.Errorf("raw: wait for the device: %w", err)
		}
		o.fence = 0
	}
	if o.mapped {
		if err := o.vm.Unmap(o.base, o.size); err != nil {
			return err
		}
		o.mapped = false
	}
	for len(o.pages) > 0 {
		if err := o.vm.Drop(o.pages[0]); err != nil {
			return err
		}
		o.pages = o.pages[1:]
	}
	if o.reserved {
		if err := o.vm.Release(o.base, o.size); err != nil {
			return err
		}
		o.reserved = false
	}
	return nil
}

// imports has the virtual memory of each device that pages of other processes are mapped in. It remembers the peers
// that EnablePeer lets use them. SetCurrent with nil forgets a device.
var imports struct {
	mu     sync.Mutex
	memory map[driver.Device]*peers.Memory
}

// importsOf returns the memory that pages of other processes are mapped in, or nil if the device has no virtual memory.
func importsOf(dev driver.Device) *peers.Memory {
	imports.mu.Lock()
	defer imports.mu.Unlock()
	m := imports.memory[dev]
	if m == nil {
		if m = peers.Of(dev); m == nil {
			return nil
		}
		if imports.memory == nil {
			imports.memory = map[driver.Device]*peers.Memory{}
		}
		imports.memory[dev] = m
	}
	return m
}

func forgetImports(dev driver.Device) {
	imports.mu.Lock()
	defer imports.mu.Unlock()
	delete(imports.memory, dev)
}
