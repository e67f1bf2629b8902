//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"bytes"
	"testing"
)

const granule = 64 << 10

// prop asks for memory of a device, shareable or not.
func prop(device int, handleTypes int32) *allocationProp {
	return &allocationProp{kind: 1, handleTypes: handleTypes, location: location{1, int32(device)}}
}

// access1 lets one device use memory.
func access1(device int, flags uint32) *accessDesc {
	return &accessDesc{location{1, int32(device)}, flags}
}

func TestVirtualMemoryIsStrict(t *testing.T) {
	r := newRig(t, Options{Granularity: granule, Memory: 8 * granule})
	r.current(0)
	h := new(uint64)
	r.want(r.call("cuMemCreate", h, granule+4096, prop(0, 0), 0), InvalidValue)
	r.want(r.call("cuMemCreate", h, granule, prop(7, 0), 0), InvalidDevice)
	r.want(r.call("cuMemCreate", h, 9*granule, prop(0, 0), 0), OutOfMemory)
	r.want(r.call("cuMemAddressReserve", h, granule/2, 0, 0, 0), InvalidValue)
	at := r.get("cuMemAddressReserve", 4*granule, 0, 0, 0)
	page := r.get("cuMemCreate", granule, prop(0, 0), 0)
	r.want(r.call("cuMemMap", at+4096, granule, 0, page, 0), InvalidValue)
	r.want(r.call("cuMemMap", at, 2*granule, 0, page, 0), NotSupported)
	r.want(r.call("cuMemMap", at+4*granule, granule, 0, page, 0), InvalidValue)
	r.ok(r.call("cuMemMap", at+granule, granule, 0, page, 0))
	r.want(r.call("cuMemMap", at+granule, granule, 0, page, 0), InvalidValue)
	r.want(r.call("cuMemSetAccess", at, 2*granule, access1(0, 3), 1), InvalidValue)
	r.want(r.call("cuMemUnmap", at, 2*granule), InvalidValue)
	r.want(r.call("cuMemAddressFree", at, 4*granule), InvalidValue)

	// The memory is there until it is released and unmapped.
	r.ok(r.call("cuMemRelease", page))
	r.want(r.call("cuMemRelease", page), InvalidValue)
	if got := r.Used(0); got != granule {
		t.Errorf("%d bytes used, want %d", got, granule)
	}
	r.ok(r.call("cuMemUnmap", at+granule, granule))
	r.ok(r.call("cuMemAddressFree", at, 4*granule))
	if got := r.Used(0); got != 0 {
		t.Errorf("%d bytes used, want 0", got)
	}
	if leaks := r.Leaks(); len(leaks) != 1 { // the context
		t.Errorf("leaks: %q", leaks)
	}
}

func TestPageShowsAtEveryAddress(t *testing.T) {
	r := newRig(t, Options{Granularity: granule})
	r.current(0)
	at := r.get("cuMemAddressReserve", 2*granule, 0, 0, 0)
	page := r.get("cuMemCreate", granule, prop(0, 0), 0)
	r.ok(r.call("cuMemMap", at, granule, 0, page, 0))
	r.ok(r.call("cuMemMap", at+granule, granule, 0, page, 0))
	r.ok(r.call("cuMemSetAccess", at, 2*granule, access1(0, accessReadWrite), 1))
	if bytes.Equal(r.Bytes(at, 64), make([]byte, 64)) {
		t.Error("fresh memory is zero")
	}
	r.ok(r.call("cuMemsetD8Async", at+8, 7, 16, 0))
	r.ok(r.call("cuCtxSynchronize"))
	if got := r.Bytes(at+granule+8, 16); !bytes.Equal(got, bytes.Repeat([]byte{7}, 16)) {
		t.Errorf("the second address shows %v", got)
	}
}

func TestMappedMemoryNeedsAccess(t *testing.T) {
	for name, flags := range map[string]uint32{"none": accessNone, "read only": accessRead} {
		r := newRig(t, Options{Granularity: granule})
		r.current(0)
		at := r.get("cuMemAddressReserve", granule, 0, 0, 0)
		r.ok(r.call("cuMemMap", at, granule, 0, r.get("cuMemCreate", granule, prop(0, 0), 0), 0))
		if flags != accessNone {
			r.ok(r.call("cuMemSetAccess", at, granule, access1(0, flags), 1))
			r.ok(r.call("cuMemcpyDtoH_v2", make([]byte, 8), at, 8))
		}
		r.ok(r.call("cuMemsetD8Async", at, 1, 8, 0))
		if got := r.call("cuCtxSynchronize"); got != IllegalAddress {
			t.Errorf("%s: memset gave %d", name, got)
		}
		r.want(r.call("cuMemAlloc_v2", new(uint64), 8), IllegalAddress) // the context is done for
		r.Close()
	}
}

func TestUnmapDoesNotWait(t *testing.T) {
	r := newRig(t, Options{Granularity: granule})
	r.current(0)
	at := r.get("cuMemAddressReserve", granule, 0, 0, 0)
	r.ok(r.call("cuMemMap", at, granule, 0, r.get("cuMemCreate", granule, prop(0, 0), 0), 0))
	r.ok(r.call("cuMemSetAccess", at, granule, access1(0, 3), 1))
	r.ok(r.call("cuMemsetD8Async", at, 1, 8, 0))
	r.ok(r.call("cuMemUnmap", at, granule))
	r.want(r.call("cuCtxSynchronize"), IllegalAddress)
}
