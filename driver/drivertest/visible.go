package drivertest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// testVisible checks that what Go code sees of a device's memory is that memory, and nothing beside it.
func testVisible(t *testing.T, open openFunc) {
	d := open(t)
	v := d.Visible()
	if v == nil {
		return
	}
	const n = 4096
	p := Alloc(t, d, n)
	s := d.DefaultStream()
	testkit.Must(t, s.CopyIn(p, bytes.Repeat([]byte{7}, n)))
	testkit.Must(t, s.Sync(context.Background()))
	b, err := v.Bytes(p+10, 100)
	testkit.Must(t, err)
	if !bytes.Equal(b, bytes.Repeat([]byte{7}, 100)) {
		t.Errorf("Bytes shows %v, not what CopyIn wrote", b)
	}
	b[3] = 9
	got := make([]byte, 5)
	testkit.Must(t, s.CopyOut(got, p+11))
	if want := []byte{7, 7, 9, 7, 7}; !bytes.Equal(got, want) {
		t.Errorf("after a write through Bytes, CopyOut gives %v, want %v", got, want)
	}
	if b, err := v.Bytes(p, 0); err != nil || len(b) != 0 {
		t.Errorf("no bytes: %v, %v", b, err)
	}
	testkit.Must(t, d.Free(p))
	if _, err := v.Bytes(p, 1); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Bytes of freed memory: %v, want ErrInvalid", err)
	}
}

// testLibraryCall checks that work queued by a call of another library is work of the stream: a device whose streams
// have no handles refuses it without calling, and on others a mark covers it.
func testLibraryCall(t *testing.T, open openFunc) {
	d := open(t)
	k := d.Kernels()
	if k == nil {
		return
	}
	s := d.DefaultStream()
	before, err := s.Mark()
	testkit.Must(t, err)
	called := 0
	err = k.Launch(s, driver.Kernel{Name: "library", Call: func(uintptr) error { called++; return nil }})
	if errors.Is(err, driver.ErrUnsupported) {
		if called != 0 {
			t.Error("the call was made, and refused")
		}
		return
	}
	testkit.Must(t, err)
	if called != 1 {
		t.Fatalf("the call was made %d times before Launch returned, want once", called)
	}
	after, err := s.Mark()
	testkit.Must(t, err)
	if after.Tick == before.Tick {
		t.Error("a call of another library is work, but a mark after it is the one before it")
	}
	bad := errors.New("bad")
	if err := k.Launch(s, driver.Kernel{Name: "fails", Call: func(uintptr) error {
		return bad
	}}); !errors.Is(err, bad) {
		t.Errorf("Launch of a call that fails: %v, want its error", err)
	}
	testkit.Must(t, s.Sync(context.Background()))
}
