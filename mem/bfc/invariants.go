package bfc

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/invariants"
)

// verify checks the allocator under the build tag invariants. The lock is held.
func (a *Allocator) verify() {
	if invariants.Enabled {
		invariants.Check(a.check)
	}
}

// Check checks the allocator's data structures, for tests. It returns nil unless there is a bug. Its time grows with
// the number of blocks.
func (a *Allocator) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.check()
}

func (a *Allocator) check() error {
	line := map[ref]bool{}
	for _, n := range a.timed {
		if line[n] || !a.blocks[n].queued {
			return fmt.Errorf("bfc: record %d is in line twice, or does not know", n)
		}
		line[n] = true
	}
	var blocks, bytes, asked, shared, sharedBytes, reserved, loose int64
	var end driver.Pointer
	for _, s := range a.segments {
		if s.ptr < end || s.size <= 0 || s.size%unit != 0 {
			return fmt.Errorf("bfc: segment %#x of %d bytes, after one that ends at %#x", uint64(s.ptr), s.size,
				uint64(end))
		}
		at, before := s.ptr, ref(0)
		for n := s.first; n != 0; before, n = n, a.blocks[n].next {
			r := &a.blocks[n]
			if r.ptr != at || r.size <= 0 || r.size%unit != 0 || r.prev != before || r.state == none ||
				r.requested > r.size && r.state == live {
				return fmt.Errorf("bfc: record %d, at %#x after %d: %+v", n, uint64(at), before, *r)
			}
			at += driver.Pointer(r.size)
			if r.state == live {
				blocks, bytes, asked = blocks+1, bytes+r.size, asked+r.requested
				continue
			}
			loose++
			if r.shares() && a.pages == nil {
				shared, sharedBytes = shared+1, sharedBytes+r.size
			}
			if p := &a.blocks[before]; p.state == free && p.freedAt == 0 && r.freedAt == 0 {
				return fmt.Errorf("bfc: records %d and %d are neighbours and free", before, n)
			}
			if r.freedAt > 0 && !line[n] {
				return fmt.Errorf("bfc: record %d has the stamp %d, and is not in line", n, r.freedAt)
			}
		}
		if end = s.ptr + driver.Pointer(s.size); at != end {
			return fmt.Errorf("bfc: the blocks of segment %#x end at %#x, it at %#x", uint64(s.ptr), uint64(at),
				uint64(end))
		}
		reserved += s.size
	}
	n := &a.stats
	switch {
	case n.Allocation.All.Current != blocks || n.AllocatedBytes.All.Current != bytes ||
		n.RequestedBytes.All.Current != asked:
		return fmt.Errorf("bfc: %d blocks of %d bytes, %d asked for; the statistics are %+v", blocks, bytes, asked, *n)
	case n.InactiveSplit.All.Current != shared || n.InactiveSplitBytes.All.Current != sharedBytes ||
		n.ReservedBytes.All.Current != reserved:
		return fmt.Errorf("bfc: %d free blocks of %d bytes share segments of %d; the statistics are %+v", shared,
			sharedBytes, reserved, *n)
	case blocks+loose+1 != int64(len(a.blocks)-len(a.unused)):
		return fmt.Errorf("bfc: %d blocks and %d free, in %d records less %d", blocks, loose, len(a.blocks),
			len(a.unused))
	case reserved > a.cfg.Limit:
		return fmt.Errorf("bfc: %d bytes in segments, the limit is %d", reserved, a.cfg.Limit)
	}
	return a.checkBins(loose)
}

// checkBins checks the number of blocks in the bins, that all are free, and that each is in its bin and in order.
func (a *Allocator) checkBins(loose int64) error {
	for b, root := range a.bins.roots {
		if (root != 0) != (a.bins.used>>b&1 != 0) {
			return fmt.Errorf("bfc: bin %d is in use or not: root %d, used %#x", b, root, a.bins.used)
		}
		last := block{}
		var walk func(n ref) error
		walk = func(n ref) error {
			if n == 0 {
				return nil
			}
			r := &a.blocks[n]
			if err := walk(r.left); err != nil {
				return err
			}
			for _, kid := range []ref{r.left, r.right} {
				if kid != 0 && weight(kid) > weight(n) {
					return fmt.Errorf("bfc: record %d is below %d in bin %d", kid, n, b)
				}
			}
			if r.state != free || binOf(r.size) != b || !less(&last, r.size, r.ptr) {
				return fmt.Errorf("bfc: bin %d has %+v after %+v", b, *r, last)
			}
			last = *r
			loose--
			return walk(r.right)
		}
		if err := walk(root); err != nil {
			return err
		}
	}
	if loose != 0 {
		return fmt.Errorf("bfc: %d free blocks are in no bin", loose)
	}
	return nil
}
