package paged

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// AddPeer implements mem.PeerAdder: current and future pages are mapped for dev too. NVIDIA's driver refuses pages that
// have been at two addresses at once (CUDA_ERROR_INVALID_VALUE; driver 580), so memory that other devices use wants
// Config.NoAliases. Without it, AddPeer frees the idle pages first, and fails if live blocks are in pages that moved;
// from then on pages have one address.
func (a *Allocator) AddPeer(dev driver.Device) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.verify()
	if !a.cfg.NoAliases {
		a.flushCaches()
		if a.aliasesInGraphs() {
			return fmt.Errorf("paged: AddPeer: captured graphs use pages at several addresses: %w; the setting aliases=off "+
				"from the start avoids them", driver.ErrUnsupported)
		}
		if err := errors.Join(a.emptyCache(), a.unmapAliases(func(s *space) bool { return !s.fixed() })); err != nil {
			return fmt.Errorf("paged: AddPeer: %w", err)
		}
		a.cfg.NoAliases = true
	}
	if err := a.vm.Add(dev); err != nil {
		return fmt.Errorf("paged: AddPeer: %w; the setting aliases=off from the start avoids pages that moved", err)
	}
	return nil
}

// ExportPages implements mem.PageExporter. A live block has pages behind it unless it is paused; then the error matches
// ErrPaused.
func (a *Allocator) ExportPages(
	p driver.Pointer, size int64,
) (base driver.Pointer, pages []driver.PageFile, err error) {
	if base, pages, err = a.vm.Export(p, size); err == nil && len(pages) == 0 && a.anyPaused() {
		err = ErrPaused
	}
	if err != nil {
		err = fmt.Errorf("paged: ExportPages: %w", err)
	}
	return base, pages, err
}

// EndExport undoes all calls of ExportPages for [p, p+size), a block that is live or that Restore freed: the
// descriptors of pages that no other exported block has are closed. Processes that opened the pages keep them.
func (a *Allocator) EndExport(p driver.Pointer, size int64) { a.vm.EndExport(p, size) }

// aliasesInGraphs reports whether a page of a pool that graphs use has several addresses.
func (a *Allocator) aliasesInGraphs() bool {
	return slices.ContainsFunc(a.pages, func(p page) bool {
		return p.first != 0 && p.space.fixed() && a.mappings[p.first].sibling != 0
	})
}
