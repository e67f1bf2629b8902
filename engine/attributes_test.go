package engine

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// AllocatorFor returns an allocator for memory with given attributes. Device memory comes from the engine's allocator,
// with the engine's limit. The caller closes the allocator of host memory.
func TestAllocatorFor(t *testing.T) {
	e, devs := simulated(t, 1, Config{Devices: []DeviceConfig{{MemoryLimit: 2 << 20}}}) // one segment
	s := devs[0].DefaultStream()
	for _, want := range []mem.Attributes{0, mem.GPUCompatible, mem.TrackSizes} {
		a, err := e.AllocatorFor(0, want)
		if err != nil {
			t.Fatal(err)
		}
		if _, closes := a.(io.Closer); closes {
			t.Errorf("%v: the engine's allocator can be closed", want)
		}
		b, err := a.Alloc(s, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if info, _ := e.DeviceInfo(0); info.Allocated != b.Size {
			t.Errorf("%v: the engine has %d bytes allocated, not %d", want, info.Allocated, b.Size)
		}
		if _, err := a.Alloc(s, 2<<20); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("%v: over the limit: %v", want, err)
		}
		if tracked, ok := a.(mem.SizeTracker); ok != (want == mem.TrackSizes) || ok && tracked.RequestedSize(b) != 1000 {
			t.Errorf("%v: tracks sizes: %v", want, ok)
		}
		a.Free(b)
	}
	for _, want := range []mem.Attributes{mem.OnHost, mem.OnHost | mem.GPUCompatible, mem.OnHost | mem.GPUCompatible | mem.TrackSizes} {
		a, err := e.AllocatorFor(0, want)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Alloc(s, 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		v, ok := mem.Find[driver.Visible](a)
		if !ok {
			t.Fatalf("%v: %T is out of reach", want, a)
		}
		if bytes, err := v.Bytes(b.Ptr, b.Size); err != nil || devs[0].Pinned().IsPinned(bytes) != (want != mem.OnHost) {
			t.Errorf("%v: %v", want, err)
		}
		if _, locked := mem.Find[*pinned.MemAllocator](a); locked != (want != mem.OnHost) {
			t.Errorf("%v: %T", want, a)
		}
		a.Free(b)
		if err := a.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := e.AllocatorFor(0, mem.NICCompatible); !errors.Is(err, mem.ErrUnknown) || !strings.Contains(err.Error(), "pinned (on_host,gpu_compatible)") {
		t.Errorf("memory for a network card: %v", err)
	}
}

// On the host device, all memory is host memory. After Close there is no allocator.
func TestAllocatorForOnTheHost(t *testing.T) {
	e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{Spec: "host:total=64MiB"}}})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := e.AllocatorFor(0, mem.OnHost|mem.GPUCompatible); err != nil || a != e.Allocator(0) {
		t.Errorf("%T, %v", a, err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []mem.Attributes{0, mem.OnHost, mem.NICCompatible} {
		if _, err := e.AllocatorFor(0, want); !errors.Is(err, ErrClosed) {
			t.Errorf("%v after Close: %v", want, err)
		}
	}
}
