//go:build gpu

package engine

import (
	"bytes"
	"io"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// A GPU is asked for memory of the host's that it can copy by itself, and its own: bytes pass through both.
func TestGPUAllocatorFor(t *testing.T) {
	e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{Spec: "cuda:0"}}})
	testkit.Must(t, err)
	host, err := e.AllocatorFor(0, mem.OnHost|mem.GPUCompatible)
	testkit.Must(t, err)
	own, err := e.AllocatorFor(0, mem.TrackSizes)
	testkit.Must(t, err)
	s, size := e.Place(0).Stream(), int64(8<<20)
	from, err := host.Alloc(s, size)
	testkit.Must(t, err)
	on, err := own.Alloc(s, size)
	testkit.Must(t, err)
	view, ok := mem.Find[driver.Visible](host)
	if !ok {
		t.Fatalf("%T is out of reach", host)
	}
	b, err := view.Bytes(from.Ptr, size)
	testkit.Must(t, err)
	for i := range b {
		b[i] = byte(i * 7)
	}
	want := bytes.Clone(b)
	testkit.Must(t, s.CopyIn(on.Ptr, b))
	testkit.Must(t, s.Sync(t.Context()))
	clear(b)
	testkit.Must(t, s.CopyOut(b, on.Ptr))
	testkit.Must(t, s.Sync(t.Context()))
	if !bytes.Equal(b, want) {
		t.Error("the bytes changed on their way through the GPU")
	}
	own.Free(on)
	host.Free(from)
	testkit.Must(t, host.(io.Closer).Close())
	testkit.Must(t, e.Close(t.Context()))
}
