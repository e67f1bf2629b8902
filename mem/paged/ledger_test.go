package paged_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// A ledger replays an allocator's events, starting from a snapshot.
type ledger struct {
	a     *paged.Allocator
	live  map[driver.Pointer]int64 // requested bytes
	pages map[driver.Pointer]bool  // granules that are mapped
	size  int64                    // of a granule
	n     int
	wrong error // the first event that makes no sense
}

// newLedger begins to observe. No goroutine may use the allocator during the call.
func newLedger(a *paged.Allocator) *ledger {
	l := &ledger{a: a, live: map[driver.Pointer]int64{}, pages: map[driver.Pointer]bool{}, size: a.PageStats().Granule}
	a.Observe(l.hear)
	for _, seg := range a.Snapshot() {
		l.segment(seg.Ptr, seg.TotalSize, true)
		for _, b := range seg.Blocks {
			if b.State == mem.ActiveAllocated {
				l.live[b.Ptr] = b.RequestedSize
			}
		}
	}
	return l
}

func (l *ledger) fail(format string, args ...any) {
	if l.wrong == nil {
		l.wrong = fmt.Errorf("event %d: %s", l.n, fmt.Sprintf(format, args...))
	}
}

func (l *ledger) segment(p driver.Pointer, size int64, mapped bool) {
	for at := p; at < p+driver.Pointer(size); at += driver.Pointer(l.size) {
		if l.pages[at] == mapped {
			l.fail("%#x was mapped %v already", uint64(at), mapped)
		}
		if l.pages[at] = mapped; !mapped {
			delete(l.pages, at)
		}
	}
}

func (l *ledger) hear(e mem.Event) {
	l.n++
	switch e.Action {
	case mem.ActionAlloc:
		if _, ok := l.live[e.Ptr]; ok || e.Size <= 0 {
			l.fail("%+v: is live already", e)
		}
		l.live[e.Ptr] = e.Size
		for at := e.Ptr; at < e.Ptr+driver.Pointer(e.Size); at += 512 {
			if !l.pages[at/driver.Pointer(l.size)*driver.Pointer(l.size)] {
				l.fail("%+v: no memory at %#x", e, uint64(at))
				break
			}
		}
	case mem.ActionFreeCompleted:
		if size, ok := l.live[e.Ptr]; !ok || size != e.Size {
			l.fail("%+v: live are %d bytes", e, size)
		}
		delete(l.live, e.Ptr)
	case mem.ActionSegmentMap:
		l.segment(e.Ptr, e.Size, true)
	case mem.ActionSegmentUnmap:
		l.segment(e.Ptr, e.Size, false)
	}
}

// close ends observing, and compares the events with the statistics.
func (l *ledger) close() error {
	l.a.Observe(nil)
	if l.wrong != nil {
		return l.wrong
	}
	var asked int64
	for _, size := range l.live {
		asked += size
	}
	s := l.a.Stats()
	if got := s.RequestedBytes.All.Current; asked != got || int64(len(l.live)) != s.Allocation.All.Current {
		return fmt.Errorf("events leave %d blocks and %d live bytes, the statistics say %d and %d", len(l.live), asked,
			s.Allocation.All.Current, got)
	}
	if got := s.ReservedBytes.All.Current; int64(len(l.pages))*l.size != got {
		return fmt.Errorf("events leave %d bytes mapped, the statistics say %d", int64(len(l.pages))*l.size, got)
	}
	return nil
}
