//go:build libashlar

package main

/*
#include "guard.h"

static inline void report_segment(ashlar_segment_fn fn, void *ctx, const ashlar_segment *s) { fn(ctx, s); }
static inline void report_event(ashlar_event_fn fn, void *ctx, const ashlar_event *e) { fn(ctx, e); }
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/internal/dropin"
	"github.com/ashlar-go/ashlar/mem"
)

// process is created by ashlarGoInit; nil before, and after a panic.
var process atomic.Pointer[dropin.Process]

// initialized holds the arguments of ashlarGoInit.
var initialized struct {
	sync.Mutex
	devices  C.int32_t
	settings string
}

// failed returns the status for an error, and stores its text for last_error.
func failed(c *C.ashlar_call, err error) C.ashlar_status {
	if err == nil {
		return C.ASHLAR_OK
	}
	text := unsafe.Slice((*byte)(unsafe.Pointer(&c.text[0])), len(c.text))
	text[copy(text[:len(text)-1], err.Error())] = 0
	for _, s := range []struct {
		code   error
		status C.ashlar_status
	}{
		{mem.ErrNoMemory, C.ASHLAR_OOM},
		{dropin.ErrUnknown, C.ASHLAR_UNKNOWN},
		{driver.ErrCapturing, C.ASHLAR_CAPTURE},
		{dropin.ErrInvalid, C.ASHLAR_INVALID},
		{driver.ErrUnsupported, C.ASHLAR_UNSUPPORTED},
	} {
		if errors.Is(err, s.code) {
			return s.status
		}
	}
	return C.ASHLAR_FAILED
}

// do calls f with the process, and turns a panic into a status.
func do(c *C.ashlar_call, f func(p *dropin.Process) error) (status C.ashlar_status) {
	defer recovered(c, &status)
	injectPanic(c)
	p := process.Load()
	if p == nil {
		return failed(c, errUnusable())
	}
	return failed(c, f(p))
}

// recovered turns a panic into a status: a panic that leaves an exported function would end the process. All later
// calls fail.
func recovered(c *C.ashlar_call, status *C.ashlar_status) {
	if bug := recover(); bug != nil {
		text := fmt.Sprintf("%v\n%s", bug, debug.Stack())
		breakDown(text)
		*status = failed(c, errors.New("ashlar: "+text))
	}
}

//export ashlarGoInit
func ashlarGoInit(devices C.int32_t, text *C.char, c *C.ashlar_call) (status C.ashlar_status) {
	defer recovered(c, &status)
	injectPanic(c)
	initialized.Lock()
	defer initialized.Unlock()
	if brokenBy.Load() != nil {
		return failed(c, errUnusable())
	}
	wanted := C.GoString(text)
	if process.Load() != nil {
		if devices == initialized.devices && wanted == initialized.settings {
			return C.ASHLAR_OK
		}
		return failed(c, fmt.Errorf("%w: init was called before, with %d devices and settings %q", dropin.ErrInvalid,
			initialized.devices, initialized.settings))
	}
	p, err := dropin.New(int(devices), wanted, func(ordinal int) (driver.Device, error) {
		return driver.Open(fmt.Sprintf("cuda:%d", ordinal))
	})
	if err != nil {
		return failed(c, err)
	}
	initialized.devices, initialized.settings = devices, wanted
	process.Store(p)
	return C.ASHLAR_OK
}

//export ashlarGoAlloc
func ashlarGoAlloc(device C.int32_t, stream C.uintptr_t, size C.size_t, c *C.ashlar_call) (status C.ashlar_status) {
	defer recovered(c, &status)
	injectPanic(c)
	p := process.Load()
	if p == nil {
		return failed(c, errUnusable())
	}
	var at driver.Pointer
	var err error
	if n := c.num_tags; n > 0 {
		at, err = p.AllocTagged(int(device), uintptr(stream), uint64(size), dropin.Tag(c.tags[n-1]))
	} else {
		at, err = p.Alloc(int(device), uintptr(stream), uint64(size))
	}
	if err != nil {
		return failed(c, err)
	}
	c.address = C.uint64_t(at)
	return C.ASHLAR_OK
}

//export ashlarGoFree
func ashlarGoFree(at C.uint64_t, c *C.ashlar_call) (status C.ashlar_status) {
	defer recovered(c, &status)
	injectPanic(c)
	p := process.Load()
	if p == nil {
		if brokenBy.Load() != nil {
			return failed(c, errUnusable())
		}
		return C.ASHLAR_UNKNOWN
	}
	if err := p.Free(driver.Pointer(at)); err != nil {
		return failed(c, err)
	}
	return C.ASHLAR_OK
}

//export ashlarGoRecordStream
func ashlarGoRecordStream(at C.uint64_t, stream C.uintptr_t, flags C.uint32_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		return p.RecordStream(driver.Pointer(at), uintptr(stream), flags&C.ASHLAR_EXTERNAL_STREAM != 0)
	})
}

//export ashlarGoBlock
func ashlarGoBlock(at C.uint64_t, out *C.ashlar_block, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		b, err := p.Block(driver.Pointer(at))
		if err == nil {
			*out = C.ashlar_block{
				address: C.uint64_t(b.Ptr), size: C.int64_t(b.Size),
				device: C.int32_t(b.Device), pinned: C.int32_t(b.Pins),
			}
		}
		return err
	})
}

//export ashlarGoPin
func ashlarGoPin(at C.uint64_t, unpin C.int, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		if unpin != 0 {
			return p.Unpin(driver.Pointer(at))
		}
		return p.Pin(driver.Pointer(at))
	})
}

//export ashlarGoSetLimit
func ashlarGoSetLimit(device C.int32_t, bytes C.int64_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error { return p.SetLimit(int(device), int64(bytes)) })
}

//export ashlarGoEmptyCache
func ashlarGoEmptyCache(device C.int32_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error { return p.EmptyCache(int(device)) })
}

//export ashlarGoCacheInfo
func ashlarGoCacheInfo(device C.int32_t, cached, largest *C.int64_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		a, b, err := p.CacheInfo(int(device))
		*cached, *largest = C.int64_t(a), C.int64_t(b)
		return err
	})
}

//export ashlarGoStats
func ashlarGoStats(device C.int32_t, out *C.ashlar_stats, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		s, err := p.Stats(int(device))
		if err != nil {
			return err
		}
		for i, q := range s.Arrays() {
			out.arrays[i] = [3]C.ashlar_stat{stat(q.Array.All), stat(q.Array.SmallPool), stat(q.Array.LargePool)}
		}
		out.oversize_allocations, out.oversize_segments = stat(s.OversizeAllocations), stat(s.OversizeSegments)
		out.num_alloc_retries, out.num_ooms = C.int64_t(s.NumAllocRetries), C.int64_t(s.NumOOMs)
		out.num_sync_all_streams = C.int64_t(s.NumSyncAllStreams)
		out.num_device_alloc, out.num_device_free = C.int64_t(s.NumDeviceAlloc), C.int64_t(s.NumDeviceFree)
		out.max_split_size = C.int64_t(s.MaxSplitSize)
		out.limit, out.stalls = C.int64_t(s.Limit), C.int64_t(s.Stalls)
		return nil
	})
}

func stat(s mem.Stat) C.ashlar_stat {
	return C.ashlar_stat{
		current: C.int64_t(s.Current), peak: C.int64_t(s.Peak),
		allocated: C.int64_t(s.Allocated), freed: C.int64_t(s.Freed),
	}
}

//export ashlarGoResetStats
func ashlarGoResetStats(device C.int32_t, accumulated C.int, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		if accumulated != 0 {
			return p.ResetAccumulatedStats(int(device))
		}
		return p.ResetPeakStats(int(device))
	})
}

//export ashlarGoSnapshot
func ashlarGoSnapshot(device C.int32_t, fn C.ashlar_segment_fn, ctx unsafe.Pointer, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		all, err := p.Snapshot(int(device))
		for _, s := range all {
			report(s, fn, ctx)
		}
		return err
	})
}

// report calls fn with a segment.
func report(s dropin.Segment, fn C.ashlar_segment_fn, ctx unsafe.Pointer) {
	pieces := make([]C.ashlar_piece, len(s.Blocks))
	for i, b := range s.Blocks {
		pieces[i] = C.ashlar_piece{
			address: C.uint64_t(b.Ptr), size: C.int64_t(b.Size),
			requested: C.int64_t(b.RequestedSize), state: C.int32_t(b.State),
		}
	}
	segment := C.ashlar_segment{
		address: C.uint64_t(s.Ptr), stream: C.uint64_t(s.Handle), size: C.int64_t(s.TotalSize),
		allocated: C.int64_t(s.AllocatedSize), active: C.int64_t(s.ActiveSize), requested: C.int64_t(s.RequestedSize),
		large: truth(s.Large), expandable: truth(s.Expandable), num_pieces: C.int64_t(len(pieces)),
		pool: [2]C.uint64_t{C.uint64_t(s.Pool[0]), C.uint64_t(s.Pool[1])},
	}
	var pinner runtime.Pinner // cgo requires it: segment is Go memory that holds a pointer to other Go memory
	defer pinner.Unpin()
	if len(pieces) > 0 {
		pinner.Pin(&pieces[0])
		segment.pieces = &pieces[0]
	}
	C.report_segment(fn, ctx, &segment)
}

func truth(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

//export ashlarGoObserve
func ashlarGoObserve(fn C.ashlar_event_fn, ctx unsafe.Pointer, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		if fn == nil {
			return p.Observe(nil)
		}
		return p.Observe(func(e dropin.Event) {
			event := C.ashlar_event{
				action: C.int32_t(e.Action), device: C.int32_t(e.Device),
				stream: C.uint64_t(e.Handle), address: C.uint64_t(e.Ptr), size: C.int64_t(e.Size),
			}
			C.report_event(fn, ctx, &event)
		})
	})
}

//export ashlarGoEnablePeer
func ashlarGoEnablePeer(device, peer C.int32_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error { return p.EnablePeer(int(device), int(peer)) })
}

//export ashlarGoBeginCapture
func ashlarGoBeginCapture(device C.int32_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error { return p.BeginCapture(int(device)) })
}

//export ashlarGoEndCapture
func ashlarGoEndCapture(device C.int32_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error { return p.EndCapture(int(device)) })
}

//export ashlarGoRuntimeInfo
func ashlarGoRuntimeInfo(buffer *C.char, n C.size_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		if n == 0 {
			return nil
		}
		out := unsafe.Slice((*byte)(unsafe.Pointer(buffer)), int(n))
		out[copy(out[:n-1], runtimeInfo()+p.PlanInfo())] = 0
		return nil
	})
}

// runtimeInfo returns a text about Go's runtime in this process.
func runtimeInfo() string {
	var gc debug.GCStats
	gc.PauseQuantiles = make([]time.Duration, 101)
	debug.ReadGCStats(&gc)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("go: %s\nsettings: %s\ngoroutines: %d\nheap bytes: %d\ngarbage collections: %d\n"+
		"longest recent pause ns: %d\nmedian recent pause ns: %d\n", runtime.Version(), initialized.settings,
		runtime.NumGoroutine(), m.HeapAlloc, gc.NumGC, gc.PauseQuantiles[100], gc.PauseQuantiles[50])
}
