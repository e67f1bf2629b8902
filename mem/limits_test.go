package mem_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// These are layers that report what their names say.
type (
	above   struct{ mem.Allocator }
	limitOf struct {
		above
		limit int64
	}
	saysLimit struct {
		limitOf
		has bool
	}
	capacityOf struct {
		above
		capacity int64
	}
	statsOf struct {
		above
		stats mem.Stats
	}
	frameworksOf struct {
		above
		stats mem.FrameworkStats
	}
	snapshotOf struct {
		above
		segments []mem.SegmentInfo
	}
)

func (a above) Unwrap() mem.Allocator                     { return a.Allocator }
func (l limitOf) Limit() int64                            { return l.limit }
func (l saysLimit) HasLimit() bool                        { return l.has }
func (c capacityOf) Capacity() int64                      { return c.capacity }
func (s statsOf) Stats() mem.Stats                        { return s.stats }
func (s statsOf) ResetPeakStats()                         {}
func (s statsOf) ResetAccumulatedStats()                  {}
func (f frameworksOf) FrameworkStats() mem.FrameworkStats { return f.stats }
func (s snapshotOf) Snapshot() []mem.SegmentInfo          { return s.segments }

func limited(a mem.Allocator, limit int64) mem.Allocator { return limitOf{above{a}, limit} }

func says(a mem.Allocator, limit int64, has bool) mem.Allocator {
	return saysLimit{limitOf{above{a}, limit}, has}
}

func TestLimitOfIsTheLowest(t *testing.T) {
	plain := &plainAllocator{}
	for name, c := range map[string]struct {
		a    mem.Allocator
		want int64
		ok   bool
	}{
		"no layer":           {plain, 0, false},
		"0 is none":          {limited(plain, 0), 0, false},
		"one":                {limited(plain, 7), 7, true},
		"the lower is above": {limited(limited(plain, 7), 5), 5, true},
		"the lower is below": {limited(limited(plain, 5), 7), 5, true},
		"none above one":     {limited(above{limited(plain, 5)}, 0), 5, true},
		"0 that is a limit":  {says(limited(plain, 5), 0, true), 0, true},
		"5 that is none":     {says(limited(plain, 7), 5, false), 7, true},
	} {
		if got, ok := mem.LimitOf(c.a); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v; want %d, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestLimitErrorSaysWhatToDo(t *testing.T) {
	const mib = 1 << 20
	for want, e := range map[string]*mem.LimitError{
		"mem: out of memory: 5.00MiB asked for, 7.00MiB of the limit of 10.00MiB allocated; free blocks or raise the limit": {
			Want: 5 * mib, Block: 5 * mib, Live: 7 * mib, Limit: 10 * mib,
		},
		"mem: out of memory: 5.00MiB (a block of 6.00MiB) asked for, 7.00MiB of the limit of 10.00MiB allocated; free blocks or raise the limit": {
			Want: 5 * mib, Block: 6 * mib, Live: 7 * mib, Limit: 10 * mib,
		},
		"mem: out of memory: 5.00MiB asked for, and the engine's MemoryLimit, which is 10.00MiB, leaves 3.00MiB; free memory or raise the limit": {
			Want: 5 * mib, Block: 5 * mib, Live: 7 * mib, Limit: 10 * mib, Name: "the engine's MemoryLimit",
		},
	} {
		if e.Error() != want {
			t.Errorf("got  %v\nwant %s", e, want)
		}
		if !errors.Is(e, mem.ErrNoMemory) || !errors.Is(e, driver.ErrNoMemory) || errors.Is(e, driver.ErrLost) {
			t.Errorf("%v matches other errors than ErrNoMemory", e)
		}
	}
}
