package mem

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
)

// A PeerAdder is an allocator that may map memory page by page. driver.Peers.Enable does not cover such memory.
type PeerAdder interface {
	// AddPeer lets work on dev, a device of the same driver, use all pages that the allocator has mapped and will map,
	// until dev is closed. Adding a device twice is a no-op. The error matches driver.ErrUnsupported if dev cannot
	// access the memory of the allocator's device.
	AddPeer(dev driver.Device) error
}

// A PageExporter is an allocator that may map memory page by page. driver.Sharing.Export does not cover such memory.
type PageExporter interface {
	// ExportPages returns, in address order, the descriptors of the pages of [p, p+size), which must lie in a live
	// block, and the address of the first page. Other processes open them with driver.Sharing.ImportPage. It returns no
	// pages if the memory is not mapped page by page. The allocator owns the descriptors. It closes them when it unmaps
	// the pages, after the block is freed, or before, if the allocator has an EndExport. The error matches
	// driver.ErrUnsupported if other processes cannot open the pages.
	ExportPages(p driver.Pointer, size int64) (base driver.Pointer, pages []driver.PageFile, err error)
}

// EnablePeer lets work on dev use the memory of other directly (PyTorch's enablePeerAccess): the memory that other's
// Alloc returns, and the pages that a, an allocator of other's memory, has mapped and will map. Enabling twice is a
// no-op. The error matches driver.ErrUnsupported if the devices are not linked.
func EnablePeer(dev, other driver.Device, a Allocator) error {
	dev, other = peers.Underlying(dev), peers.Underlying(other)
	access := dev.Peers()
	if access == nil {
		return fmt.Errorf("mem: EnablePeer: %s %d reaches no other device: %w", dev.Info().Driver, dev.Info().Ordinal,
			driver.ErrUnsupported)
	}
	if err := access.Enable(other); err != nil {
		return err
	}
	for layer := range Layers(a) {
		if p, ok := layer.(PeerAdder); ok {
			if err := p.AddPeer(dev); err != nil {
				return err
			}
		}
	}
	return nil
}
