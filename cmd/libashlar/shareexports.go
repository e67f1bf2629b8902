//go:build libashlar

package main

/*
#include "guard.h"

static inline void report_handle(ashlar_handle_fn fn, void *ctx, void *handle, size_t n, int64_t offset)
{
	fn(ctx, handle, n, offset);
}
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/dropin"
)

//export ashlarGoShare
func ashlarGoShare(
	at C.uint64_t, flags C.uint32_t, fn C.ashlar_handle_fn, ctx unsafe.Pointer, c *C.ashlar_call,
) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		handle, offset, err := p.Share(driver.Pointer(at), flags&C.ASHLAR_TORCH_HANDLE != 0)
		if err == nil {
			C.report_handle(fn, ctx, unsafe.Pointer(&handle[0]), C.size_t(len(handle)), C.int64_t(offset))
		}
		return err
	})
}

//export ashlarGoOpenShared
func ashlarGoOpenShared(
	device C.int32_t, handle unsafe.Pointer, n C.size_t, c *C.ashlar_call,
) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		if n > math.MaxInt32 {
			return dropin.ErrUnknown
		}
		at, err := p.OpenShared(int(device), C.GoBytes(handle, C.int(n)))
		c.address = C.uint64_t(at)
		return err
	})
}

//export ashlarGoCloseShared
func ashlarGoCloseShared(at C.uint64_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error { return p.CloseShared(driver.Pointer(at)) })
}

//export ashlarGoSharedInfo
func ashlarGoSharedInfo(exported, open *C.int64_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		a, b := p.SharedInfo()
		*exported, *open = C.int64_t(a), C.int64_t(b)
		return nil
	})
}
