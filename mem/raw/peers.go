package raw

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// EnablePeer lets work on dev use memory of other directly (enablePeerAccess): allocations of the driver's, and what
// other's current allocator maps page by page, as in expandable segments, now and later. Another allocator that becomes
// current does so once EnablePeer is called again. The error matches driver.ErrUnsupported if the devices are not
// linked; Copy works all the same.
func EnablePeer(dev, other driver.Device) error {
	if dev.Peers() == nil {
		return noPeers("EnablePeer", dev)
	}
	a, err := Current(other)
	if err != nil {
		return err
	}
	return mem.EnablePeer(dev, other, a)
}

// Copy queues on s, a stream of from, a copy of n bytes from src on the device from to dst on the device to: which may
// be the same, a peer, or a device that the driver reaches through the host (memcpyAsync). Ranges that overlap are
// refused: see driver.Stream.
func Copy(s driver.Stream, dst driver.Pointer, to driver.Device, src driver.Pointer, from driver.Device, n int64) error {
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

// A Handle lets another process of the same user open the memory at an address: what CUDA calls an IPC handle, and
// where the address lies in what it opens.
type Handle struct {
	Memory []byte // of the whole base allocation (driver.Sharing.Export), or of the pages behind the block
	Offset int64  // of the address in it, in bytes
}

// IPCHandle returns the handle of p, an address in a live block (shareIpcHandle). The process that gets it sees all of
// the base allocation, other blocks in it too, and for as long as it has it open the memory stays allocated; but only
// if it opens it before that goes back to the driver, so the sender of a handle keeps the block. Package mem/ipc counts
// and shares nothing else: see Ticket.
//
// Memory that is mapped page by page, as in expandable segments, has no base allocation: a handle is of the pages
// behind the block then. PyTorch's handles of such memory name descriptors of this process, which the other takes by
// tracing this one, and containers refuse that. These name an abstract socket, where a goroutine of this process hands
// the descriptors to processes of the same user, in the same network namespace, as long as the block is live. It runs
// from the first such handle to the end of the process.
//
// The error is BaseAllocation's, or the device's: it matches driver.ErrUnsupported if other processes cannot use the
// memory. An address outside the live blocks panics.
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

// OpenIPCHandle opens another process's handle on dev, and returns the address that it is of, here (getIpcDevPtr).
// Close gives the memory up after the work queued on dev is done, and is called once; after an error it may be called
// again. Delete does not take the address. The error matches driver.ErrInvalid if the handle is none, or its exporter
// is gone.
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

// openMemory opens the memory that a handle is of.
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
