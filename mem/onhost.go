package mem

import (
	"errors"
	"fmt"
	"io"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
)

// An onHost allocates ordinary host memory for programs that work on another device: AllocatorFor with OnHost alone. It
// uses an allocator of its own host device. Devices copy from and to such memory while the caller waits (Stream.CopyIn,
// CopyOut), so no queued work accesses it, and one stream is enough.
type onHost struct {
	host  driver.Device
	below Allocator
}

func init() {
	RegisterFor(OnHost, "host", "", 30, func(_ driver.Device, settings string) (Allocator, error) {
		return openOnHost(settings)
	})
}

// openOnHost opens the host driver with these settings, and its default allocator.
func openOnHost(settings string) (Allocator, error) {
	spec := "host"
	if settings != "" {
		spec += ":" + settings
	}
	dev, err := driver.Open(spec)
	if err != nil {
		return nil, fmt.Errorf("mem: an allocator of host memory: %w", err)
	}
	a, err := Open("", dev)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mem: an allocator of host memory: %w", err), dev.Close())
	}
	return &onHost{host: dev, below: a}, nil
}

// Alloc implements Allocator.
func (h *onHost) Alloc(s driver.Stream, size int64) (Block, error) {
	return h.AllocWith(s, size, AllocOptions{})
}

// AllocWith implements OptionsAllocator.
func (h *onHost) AllocWith(s driver.Stream, size int64, o AllocOptions) (Block, error) {
	check.Stream("mem: host: Alloc", s)
	return AllocWith(h.below, h.host.DefaultStream(), size, o)
}

// Free implements Allocator.
func (h *onHost) Free(b Block, used ...driver.Stream) {
	check.Used("mem: host: Free", used)
	h.below.Free(b)
}

// Bytes implements driver.Visible.
func (h *onHost) Bytes(p driver.Pointer, size int64) ([]byte, error) {
	return h.host.Visible().Bytes(p, size)
}

// Unwrap implements Wrapper.
func (h *onHost) Unwrap() Allocator { return h.below }

// Close implements io.Closer. If the allocator does not close, because blocks are live, the host device stays open.
func (h *onHost) Close() error {
	if c, ok := Find[io.Closer](h.below); ok {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return h.host.Close()
}
