package raw

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// EnablePeer lets work on dev use memory of other directly (enablePeerAccess): the driver's allocations, the pages that
// other's current allocator maps now and later, as in expandable segments, and those that OpenIPCHandle maps. If
// another allocator becomes current, call EnablePeer again for its pages. The error matches driver.ErrUnsupported if
// the devices are not linked; Copy works even so.
func EnablePeer(dev, other driver.Device) error {
	if dev.Peers() == nil {
		return noPeers("EnablePeer", dev)
	}
	a, err := Current(other)
	if err != nil {
		return err
	}
	if err := mem.EnablePeer(dev, other, a); err != nil {
		return err
	}
	if m := importsOf(other); m != nil {
		return m.Add(dev)
	}
	return nil
}

// Copy queues on s, a stream of from, a copy of n bytes from src on the device from to dst on the device to
// (memcpyAsync). The two may be the same device, peers, or devices between which the driver copies through the host.
// Overlapping ranges are an error: see driver.Stream.
func Copy(
	s driver.Stream, dst driver.Pointer, to driver.Device, src driver.Pointer, from driver.Device, n int64,
) error {
	if to == from {
		return s.Copy(dst, src, n)
	}
	peers := from.Peers()
	if peers == nil {
		return noPeers("Copy", from)
	}
	return peers.CopyPeer(s, dst, to, src, from, n)
}

func noPeers(call string, dev driver.Device) error {
	return fmt.Errorf("raw: %s: %s %d reaches no other device: %w", call, dev.Info().Driver, dev.Info().Ordinal,
		driver.ErrUnsupported)
}

// A Handle lets another process of the same user open the memory at an address. It is CUDA's IPC handle of the memory,
// and the offset of the address in that memory.
type Handle struct {
	Memory []byte // of the whole base allocation (driver.Sharing.Export), or of the pages behind the block
	Offset int64  // of the address in it, in bytes
}

// IPCHandle returns the handle of p, an address in a live block (shareIpcHandle). The process that opens it can access
// all of the base allocation, including other blocks. The memory stays allocated while that process has it open. The
// handle must be opened before the base allocation is returned to the driver, so the sender must keep the block until
// then. Package mem/ipc counts references, and shares no other blocks: see Ticket.
//
// Memory that is mapped page by page, as in expandable segments, has no base allocation: the handle is then of the
// pages behind the block. PyTorch's handles of such memory name descriptors of this process, which the other process
// takes by tracing this one; containers forbid that. Here the handle names an abstract socket. A goroutine of this
// process sends the descriptors through it to processes of the same user, in the same network namespace, as long as the
// block is live. The goroutine runs from the first such handle to the end of the process.
//
// The error is that of BaseAllocation or of the device. It matches driver.ErrUnsupported if other processes cannot use
// the memory. An address outside the live blocks panics.
func IPCHandle(p driver.Pointer) (Handle, error) {
	l := holding("IPCHandle", p)
	sharing := l.Device.Sharing()
	if sharing == nil {
		return Handle{}, noSharing("IPCHandle", l.Device)
	}
	if exporter, ok := mem.Find[mem.PageExporter](l.From); ok {
		first, pages, err := exporter.ExportPages(l.Ptr, l.Size)
		if err != nil {
			return Handle{}, fmt.Errorf("raw: IPCHandle: %w", err)
		}
		if len(pages) > 0 {
			memory, err := pagesHandle(l.Block)
			return Handle{memory, int64(p - first)}, err
		}
	}
	base, _, err := baseOf(p, l)
	if err != nil {
		return Handle{}, err
	}
	memory, err := sharing.Export(base)
	if err != nil {
		return Handle{}, err
	}
	return Handle{memory, int64(p - base)}, nil
}

// OpenIPCHandle opens another process's handle on dev, and returns the address of its memory in this process
// (getIpcDevPtr). closeIt waits for the work queued on dev and closes the memory. Call it once; after an error it may
// be called again. Delete does not accept the address. The error matches driver.ErrInvalid if the handle is invalid or
// its exporter is gone.
func OpenIPCHandle(dev driver.Device, h Handle) (p driver.Pointer, closeIt func() error, err error) {
	sharing := dev.Sharing()
	if sharing == nil {
		return 0, nil, noSharing("OpenIPCHandle", dev)
	}
	base, size, closeIt, err := openMemory(dev, h.Memory)
	if err != nil {
		return 0, nil, err
	}
	if h.Offset < 0 || h.Offset >= size {
		err = fmt.Errorf("raw: OpenIPCHandle: an offset of %d in %d bytes: %w", h.Offset, size, driver.ErrInvalid)
		return 0, nil, errors.Join(err, closeIt())
	}
	return base + driver.Pointer(h.Offset), closeIt, nil
}

// openMemory opens the memory of a handle.
func openMemory(dev driver.Device, handle []byte) (base driver.Pointer, size int64, closeIt func() error, err error) {
	if isPagesHandle(handle) {
		return openPages(dev, handle)
	}
	sharing := dev.Sharing()
	if base, size, err = sharing.Import(handle); err != nil {
		return 0, 0, nil, err
	}
	return base, size, func() error { return sharing.Forget(base) }, nil
}

func noSharing(call string, dev driver.Device) error {
	return fmt.Errorf("raw: %s: other processes cannot use memory of %s %d: %w", call, dev.Info().Driver,
		dev.Info().Ordinal, driver.ErrUnsupported)
}
