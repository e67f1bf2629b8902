package host

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestAsynchronousCopiesReadWhenTheirTurnComes, as a GPU does: not when they are queued.
func TestAsynchronousCopiesReadWhenTheirTurnComes(t *testing.T) {
	d := open(t)
	s, pinned := d.DefaultStream(), d.Pinned()
	p := drivertest.Alloc(t, d, 4)
	src, err := pinned.AllocHost(4)
	testkit.Must(t, err)
	dst, err := pinned.AllocHost(4)
	testkit.Must(t, err)
	release := hold(t, d, s)
	copy(src, "old!")
	testkit.Must(t, pinned.CopyInAsync(s, p, src)) // returns with the stream held
	testkit.Must(t, pinned.CopyOutAsync(s, dst, p))
	copy(src, "new!")
	if bytes.Equal(dst, []byte("new!")) {
		t.Error("the copy was done with the stream held")
	}
	release()
	testkit.Must(t, s.Sync(context.Background()))
	if string(dst) != "new!" {
		t.Errorf("%q came out, want what was there when the copy was done", dst)
	}
}

func TestFreeHostAndUnregisterWait(t *testing.T) {
	for what, call := range map[string]func(p driver.Pinned, allocated, registered []byte) error{
		"FreeHost":   func(p driver.Pinned, allocated, _ []byte) error { return p.FreeHost(allocated) },
		"Unregister": func(p driver.Pinned, _, registered []byte) error { return p.Unregister(registered) },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := open(t)
			s, pinned := newStreams(t, d, 1)[0], d.Pinned()
			allocated, err := pinned.AllocHost(100)
			testkit.Must(t, err)
			registered := outside[:]
			testkit.Must(t, pinned.Register(registered))
			release := hold(t, d, s)
			returnsAfter(t, what, func() error { return call(pinned, allocated, registered) }, func() {
				if err := call(pinned, allocated, registered); err == nil {
					t.Errorf("%s twice at once worked", what)
				}
				release()
			})
		})
	}
}

// outside is memory outside Go's heap.
var outside [4096]byte

// TestPinnedMemoryIsNoDeviceMemory, nor does it count as such.
func TestPinnedMemoryIsNoDeviceMemory(t *testing.T) {
	d := open(t)
	_, total, err := d.Available()
	testkit.Must(t, err)
	b, err := d.Pinned().AllocHost(2 * total)
	testkit.Must(t, err)
	if free, _, err := d.Available(); err != nil || free != total {
		t.Errorf("%d of %d bytes available, %v, with page-locked memory allocated", free, total, err)
	}
	if err := d.DefaultStream().Fill(pointer(b), 1, 1); err == nil {
		t.Error("Fill of page-locked memory as a device's worked")
	}
	if len(b) != cap(b) {
		t.Errorf("a slice of %d bytes can grow to %d", len(b), cap(b))
	}
	testkit.Must(t, d.Pinned().FreeHost(b))
}
