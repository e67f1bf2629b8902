//go:build libashlar

package main

/*
#include "guard.h"

static inline void report_restored(ashlar_restored_fn fn, void *ctx, uint64_t p, int32_t live)
{
	fn(ctx, (void *)(uintptr_t)p, live);
}
*/
import "C"

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/dropin"
	"github.com/ashlar-go/ashlar/mem"
)

func poolID(first, second C.uint64_t) mem.PoolID { return mem.PoolID{uint64(first), uint64(second)} }

//export ashlarGoPool
func ashlarGoPool(
	device C.int32_t, first, second C.uint64_t, call C.int32_t, users *C.int64_t, c *C.ashlar_call,
) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		n, err := p.Pool(int(device), poolID(first, second), dropin.PoolCall(call))
		*users = C.int64_t(n)
		return err
	})
}

//export ashlarGoAllocInPool
func ashlarGoAllocInPool(
	device C.int32_t, stream C.uintptr_t, size C.size_t, first, second C.uint64_t, c *C.ashlar_call,
) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		at, err := p.AllocInPool(int(device), uintptr(stream), uint64(size), poolID(first, second))
		c.address = C.uint64_t(at)
		return err
	})
}

//export ashlarGoPoolLive
func ashlarGoPoolLive(
	device C.int32_t, first, second C.uint64_t, live *C.uint64_t, n C.size_t, same *C.int32_t, c *C.ashlar_call,
) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		expected := make([]driver.Pointer, n)
		for i, at := range unsafe.Slice(live, int(n)) {
			expected[i] = driver.Pointer(at)
		}
		yes, err := p.CheckPoolLive(int(device), poolID(first, second), expected)
		*same = truth(yes)
		return err
	})
}

//export ashlarGoCheckpoint
func ashlarGoCheckpoint(
	device C.int32_t, first, second C.uint64_t, state *C.uint64_t, c *C.ashlar_call,
) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		number, err := p.Checkpoint(int(device), poolID(first, second))
		*state = C.uint64_t(number)
		return err
	})
}

//export ashlarGoRestore
func ashlarGoRestore(
	device C.int32_t, state C.uint64_t, fn C.ashlar_restored_fn, ctx unsafe.Pointer, c *C.ashlar_call,
) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		d, err := p.Restore(int(device), uint64(state))
		if err != nil {
			return err
		}
		for _, b := range d.Freed {
			C.report_restored(fn, ctx, C.uint64_t(b.Ptr), 0)
		}
		for _, b := range d.Live {
			C.report_restored(fn, ctx, C.uint64_t(b.Ptr), 1)
		}
		return nil
	})
}

//export ashlarGoDropCheckpoint
func ashlarGoDropCheckpoint(state C.uint64_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		p.DropCheckpoint(uint64(state))
		return nil
	})
}
