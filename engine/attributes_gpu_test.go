//go:build gpu

package engine

import (
	"bytes"
	"io"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A GPU is asked for memory of the host's that it can copy by itself, and its own: bytes pass through both.
func TestGPUAllocatorFor(t *testing.T) {
	e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{Spec: "cuda:0"}}})
	must(t, err)
	host, err := e.AllocatorFor(0, mem.OnHost|mem.GPUCompatible)
	must(t, err)
	own, err := e.AllocatorFor(0, mem.TrackSizes)
	must(t, err)
	s, size := e.Place(0).Stream(), int64(8<<20)
	from, err := host.Alloc(s, size)
	must(t, err)
	on, err := own.Alloc(s, size)
	must(t, err)
	view, ok := mem.Find[driver.Visible](host)
	if !ok {
		t.Fatalf("%T is out of reach", host)
	}
	b, err := view.Bytes(from.Ptr, size)
	must(t, err)
	for i := range b {
		b[i] = byte(i * 7)
	}
	want := bytes.Clone(b)
	must(t, s.CopyIn(on.Ptr, b))
	must(t, s.Sync(t.Context()))
	clear(b)
	must(t, s.CopyOut(b, on.Ptr))
	must(t, s.Sync(t.Context()))
	if !bytes.Equal(b, want) {
		t.Error("the bytes changed on their way through the GPU")
	}
	own.Free(on)
	host.Free(from)
	must(t, host.(io.Closer).Close())
	must(t, e.Close(t.Context()))
}
