//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemoryIsCountedAndChecked(t *testing.T) {
	r := newRig(t, Options{Memory: 1 << 20})
	r.current(0)
	free, total := new(uint64), new(uint64)
	a := r.alloc(512 << 10)
	b := r.alloc(100)
	if b%512 != 0 || b%1024 == 0 && b%4096 == 0 {
		t.Errorf("an odd size lies at %#x: want a multiple of 512 and no more", b)
	}
	r.want(r.call("cuMemAlloc_v2", new(uint64), 1<<20), OutOfMemory)
	r.ok(r.call("cuMemGetInfo_v2", free, total))
	if *total != 1<<20 || *free != 512<<10-uint64(r.page) {
		t.Errorf("%d of %d bytes free", *free, *total)
	}
	r.want(r.call("cuMemsetD8Async", b, 0, 101, 0), InvalidValue)
	r.want(r.call("cuMemFree_v2", b+1), InvalidValue)
	r.ok(r.call("cuMemFree_v2", a))
	r.want(r.call("cuMemFree_v2", a), InvalidValue)
	r.want(r.call("cuMemcpyDtoH_v2", make([]byte, 8), a, 8), InvalidValue)
	if again := r.alloc(512 << 10); again != a {
		t.Errorf("freed addresses do not come again at once: %#x, then %#x", a, again)
	}
}

func TestPinnedMemoryIsStrict(t *testing.T) {
	r := newRig(t, Options{})
	r.current(0)
	s, p := r.stream(), r.alloc(4096)
	mine, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	r.want(r.call("cuMemHostUnregister", mine), HostNotRegistered)
	r.ok(r.call("cuMemHostRegister_v2", mine, 4096, 0))
	r.want(r.call("cuMemHostRegister_v2", mine[2048:], 4096, 0), HostAlreadyRegistered)
	r.want(r.call("cuMemFreeHost", mine), InvalidValue)

	// A pageable destination has its bytes when the call returns; a page-locked one has not.
	r.ok(r.call("cuMemsetD8Async", p, 9, 4096, s))
	r.ok(r.call("cuMemcpyDtoHAsync_v2", mine, p, 16, s))
	r.ok(r.call("cuMemcpyDtoHAsync_v2", mine[4096:], p, 16, s))
	if mine[0] != 9 || mine[4096] != 9 { // the second waited for the first too
		t.Error("a copy to pageable memory returned before it was done")
	}
	r.ok(r.call("cuMemcpyDtoHAsync_v2", mine[100:], p, 16, s))
	if mine[100] != 0 {
		t.Error("a copy to page-locked memory was done at once")
	}
	r.ok(r.call("cuMemHostUnregister", mine))
	r.want(r.call("cuStreamSynchronize", s), IllegalAddress) // too early
	if err := unix.Munmap(mine); err != nil {
		t.Fatal(err)
	}
}

func TestLargePageableCopiesWait(t *testing.T) {
	r := newRig(t, Options{})
	r.current(0)
	s, p := r.stream(), r.alloc(stagedMost+1)
	r.ok(r.call("cuMemcpyHtoDAsync_v2", p, make([]byte, stagedMost), stagedMost, s))
	if got := r.Queued(s); got != 1 {
		t.Errorf("%d pieces of work queued, want the small copy", got)
	}
	r.ok(r.call("cuMemcpyHtoDAsync_v2", p, make([]byte, stagedMost+1), stagedMost+1, s))
	if got := r.Queued(s); got != 0 {
		t.Errorf("%d pieces of work queued after a large copy", got)
	}
}

func TestPointerAttributes(t *testing.T) {
	r := newRig(t, Options{Granularity: granule})
	ctx := r.current(1)
	p := r.alloc(100)
	host := r.get("cuMemHostAlloc", 100, 0)
	v := new(uint64)
	attribute := func(a int, at uint64) uint64 {
		t.Helper()
		*v = 0
		r.ok(r.call("cuPointerGetAttribute", v, a, at))
		return *v
	}
	for _, x := range []struct {
		attribute int
		at, want  uint64
	}{
		{attrContext, p + 99, ctx},
		{attrMemoryType, p, memoryDevice},
		{attrOrdinal, p, 1},
		{attrLegacyIPC, p, 1},
		{attrRangeStart, p + 99, p},
		{attrRangeSize, p + 99, 100},
		{attrMemoryType, host + 99, memoryHost},
		{attrRangeStart, host + 99, host},
		{attrLegacyIPC, host, 0},
	} {
		if got := attribute(x.attribute, x.at); got != x.want {
			t.Errorf("attribute %d of %#x is %#x, want %#x", x.attribute, x.at, got, x.want)
		}
	}
	r.want(r.call("cuPointerGetAttribute", v, attrMemoryType, p+100), InvalidValue)
	r.want(r.call("cuPointerGetAttribute", v, attrHostPointer, p), InvalidValue)
}

func TestPeers(t *testing.T) {
	r := newRig(t, Options{Kernels: map[string]Kernel{"k": func(l Launch) Result {
		_, res := l.Memory(uint64(l.Params[0][0])|uint64(l.Params[0][1])<<8, 8, true)
		return res
	}}})
	one := r.current(1)
	far := r.alloc(4096)
	zero := r.current(0)
	near := r.alloc(4096)
	r.want(r.call("cuCtxDisablePeerAccess", one), PeerAccessNotEnabled)
	r.ok(r.call("cuMemcpyDtoDAsync_v2", near, far, 8, 0))
	r.ok(r.call("cuMemcpyPeerAsync", near, zero, far, one, 8, 0))
	r.want(r.call("cuMemcpyPeerAsync", near, one, far, zero, 8, 0), InvalidContext)
	r.ok(r.call("cuCtxSynchronize"))
	if got := r.Staged(); got != 2 {
		t.Errorf("%d copies staged, want 2", got)
	}
	r.want(r.call("cuMemFree_v2", far), InvalidContext)
	r.ok(r.call("cuCtxEnablePeerAccess", one, 0))
	r.want(r.call("cuCtxEnablePeerAccess", one, 0), PeerAccessAlreadyEnabled)
	r.want(r.call("cuCtxEnablePeerAccess", zero, 0), InvalidDevice)
	r.ok(r.call("cuMemcpyDtoDAsync_v2", near, far, 8, 0))
	r.ok(r.call("cuCtxSynchronize"))
	if got := r.Staged(); got != 2 {
		t.Errorf("%d copies staged with access enabled", got)
	}
	r.Close()

	r = newRig(t, Options{Unlinked: true})
	one = r.current(1)
	r.current(0)
	r.want(r.call("cuCtxEnablePeerAccess", one, 0), PeerAccessUnsupported)
}

func TestFaultsAndLostDevices(t *testing.T) {
	r := newRig(t, Options{})
	r.current(0)
	r.Fail("cuMemAlloc_v2", 2, OutOfMemory)
	r.alloc(8)
	r.want(r.call("cuMemAlloc_v2", new(uint64), 8), OutOfMemory)
	r.alloc(8)
	s := r.stream()
	r.Hold(s)
	r.ok(r.call("cuMemsetD8Async", r.alloc(8), 0, 8, s))
	done := make(chan Result)
	go func() { done <- r.call("cuEventQuery", 0) }() // any call of another thread, while this one waits
	r.want(<-done, InvalidHandle)
	r.Break(0, LaunchFailed)
	r.want(r.call("cuStreamSynchronize", s), LaunchFailed)
	r.want(r.call("cuMemAlloc_v2", new(uint64), 8), LaunchFailed)
	r.ok(r.call("cuDevicePrimaryCtxRelease_v2", 0)) // though the stream is held
	r.want(r.call("cuDevicePrimaryCtxRelease_v2", 0), InvalidContext)
	r.current(0)
	r.alloc(8)
	log := r.Log()
	if last := log[len(log)-1]; last.Symbol != "cuMemAlloc_v2" || last.Args[1] != 8 || last.Result != Success {
		t.Errorf("the last call was %+v", last)
	}
}
