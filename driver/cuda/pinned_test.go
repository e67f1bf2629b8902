//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"golang.org/x/sys/unix"
)

// outside returns n bytes outside Go's heap.
func outside(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, unix.Munmap(b)) })
	return b
}

func TestPinned(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	k := r.d.Pinned()
	a, err := k.AllocHost(10_000)
	r.ok(err)
	if len(a) != 10_000 || cap(a) != 10_000 {
		t.Fatalf("AllocHost(10000): length %d, capacity %d", len(a), cap(a))
	}
	b := outside(t, 8192)
	r.ok(k.Register(b))

	calls := len(r.m.Log())
	for _, c := range []struct {
		what string
		b    []byte
		want bool
	}{
		{"all of it", a, true},
		{"a part", a[5:7], true},
		{"its last byte", a[9_999:], true},
		{"registered", b[1:], true},
		{"ordinary memory", make([]byte, 10), false},
		{"nothing", nil, false},
	} {
		if got := k.IsPinned(c.b); got != c.want {
			t.Errorf("IsPinned of %s: %v", c.what, got)
		}
	}
	if len(r.m.Log()) != calls {
		t.Error("IsPinned calls libcuda")
	}

	r.wantErr("Register of what is allocated", k.Register(a[100:200]), driver.ErrInvalid)
	r.wantErr("Register twice", k.Register(b[4096:]), driver.ErrInvalid)
	r.wantErr("Register of nothing", k.Register(nil), driver.ErrInvalid)
	r.wantErr("FreeHost of a part", k.FreeHost(a[:100]), driver.ErrInvalid)
	r.wantErr("FreeHost of what is registered", k.FreeHost(b), driver.ErrInvalid)
	r.wantErr("Unregister of what is allocated", k.Unregister(a), driver.ErrInvalid)
	r.wantErr("Unregister of a part", k.Unregister(b[:4096]), driver.ErrInvalid)
	r.ok(k.Unregister(b))
	r.wantErr("Unregister twice", k.Unregister(b), driver.ErrInvalid)
	r.ok(k.FreeHost(a))
	if k.IsPinned(b) {
		t.Error("page-locked after Unregister")
	}
	_, err = k.AllocHost(1 << 50)
	r.wantErr("AllocHost of a pebibyte", err, driver.ErrNoMemory)
	r.m.Fail("cuMemHostRegister_v2", 1, fakecuda.OutOfMemory)
	r.wantErr("Register that fails", k.Register(b), driver.ErrNoMemory)
	r.ok(k.Register(b))
	r.m.Fail("cuMemHostUnregister", 1, fakecuda.InvalidValue)
	r.wantErr("Unregister that fails", k.Unregister(b), driver.ErrInvalid)
	if !k.IsPinned(b) {
		t.Error("not page-locked after an Unregister that failed")
	}
	r.ok(r.d.Close()) // gives b back
}

// TestPinnedCopies: they return at once, and the device reads the memory when it comes to them.
func TestPinnedCopies(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	k, s := r.d.Pinned(), r.stream()
	p := r.alloc(4096)
	b, err := k.AllocHost(4096)
	r.ok(err)
	copy(b, drivertest.Noise(1, 4096))
	r.m.Hold(uint64(s.handle))
	r.ok(k.CopyInAsync(s, p, b[:2000]))
	r.ok(k.CopyOutAsync(s, b[2000:4000], p))
	r.ok(k.CopyInAsync(s, p, nil))
	m := markOf(t, s)
	if reached(t, s, m) {
		t.Error("a mark behind copies that were held is reached")
	}
	copy(b, drivertest.Noise(2, 2000)) // the rule is not to: here it shows when the device reads
	freed := make(chan error)
	go func() { freed <- k.FreeHost(b) }()
	select {
	case err := <-freed:
		t.Fatalf("FreeHost did not wait: %v", err)
	default:
	}
	got := make([]byte, 2000)
	r.m.Step(uint64(s.handle))
	r.m.Step(uint64(s.handle))
	copy(got, b[2000:])
	if !bytes.Equal(got, drivertest.Noise(2, 2000)) {
		t.Error("other bytes came back")
	}
	r.m.Release(uint64(s.handle))
	r.ok(<-freed)
	r.wantErr("CopyInAsync of ordinary memory", k.CopyInAsync(s, p, make([]byte, 10)), driver.ErrInvalid)
	r.wantErr("CopyOutAsync of ordinary memory", k.CopyOutAsync(s, make([]byte, 10), p), driver.ErrInvalid)
	r.wantErr("CopyInAsync of what was freed", k.CopyInAsync(s, p, b), driver.ErrInvalid)
}

// TestPinnedCopyInACapture is recorded, and reads the memory at each launch.
func TestPinnedCopyInACapture(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	k, s := r.d.Pinned(), r.stream()
	p := r.alloc(4096)
	b, err := k.AllocHost(4096)
	r.ok(err)
	other, err := k.AllocHost(64)
	r.ok(err)
	r.ok(r.d.Graphs().Begin(s))
	r.ok(k.CopyInAsync(s, p, b))
	r.ok(k.FreeHost(other)) // waits for the streams that do not capture
	g, err := r.d.Graphs().End(s)
	r.ok(err)
	for i := range uint64(3) {
		copy(b, drivertest.Noise(i, 4096))
		r.ok(g.Launch(s))
		r.holds(s, p, drivertest.Noise(i, 4096))
	}
}
