package drivertest

import (
	"bytes"
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func mustPin(t testing.TB, p driver.Pinned, size int64) []byte {
	t.Helper()
	b, err := p.AllocHost(size)
	testkit.Must(t, err)
	if int64(len(b)) != size {
		t.Fatalf("AllocHost(%d) returned %d bytes", size, len(b))
	}
	return b
}

func testPinned(t *testing.T, open openFunc) {
	d := open(t)
	p := d.Pinned()
	if p == nil {
		return
	}
	s := NewStream(t, d)
	for i, size := range []int64{1, 7, 4095, 4096, 4097, 1<<20 + 1} {
		src, dst := mustPin(t, p, size), mustPin(t, p, size)
		if !p.IsPinned(src) || !p.IsPinned(src[size/2:]) || !p.IsPinned(dst[:1]) {
			t.Errorf("%d bytes of AllocHost, or a part of them, are not page-locked", size)
		}
		if p.IsPinned(make([]byte, size)) {
			t.Errorf("%d bytes of Go's are page-locked", size)
		}
		block := Alloc(t, d, size)
		want := Noise(uint64(200+i), int(size))
		copy(src, want)
		testkit.Must(t, p.CopyInAsync(s, block, src))
		m := mustMark(t, s)
		testkit.Must(t, s.Sync(context.Background()))
		if ok, err := s.Reached(m); !ok || err != nil {
			t.Errorf("a mark after CopyInAsync, after Sync: reached %v, %v", ok, err)
		}
		clear(src) // the mark is reached
		wantBytes(t, s, block, want)
		testkit.Must(t, p.CopyOutAsync(s, dst, block))
		testkit.Must(t, s.Sync(context.Background()))
		if !bytes.Equal(dst, want) {
			t.Errorf("%d bytes: other bytes came back", size)
		}
		testkit.Must(t, p.CopyInAsync(s, block, src[:0])) // no bytes are nothing to do
		testkit.Must(t, p.CopyOutAsync(s, dst[:0], block))
		testkit.Must(t, p.FreeHost(src))
		testkit.Must(t, p.FreeHost(dst))
		testkit.Must(t, d.Free(block))
	}
}

// testPinnedOrder: asynchronous copies are done in the order of their stream, and after marks of others.
func testPinnedOrder(t *testing.T, open openFunc) {
	d := open(t)
	p := d.Pinned()
	if p == nil {
		return
	}
	a := NewStream(t, d)
	b := NewStream(t, d)
	const size, rounds = 5001, 20
	block := Alloc(t, d, 2*size)
	src, dst := mustPin(t, p, size), mustPin(t, p, rounds*size)
	want := Noise(9, size)
	copy(src, want)

	// Each round takes the block out before the next changes it. B is always told to wait.
	for i := range rounds {
		out := dst[i*size : (i+1)*size]
		switch i % 3 {
		case 0:
			testkit.Must(t, a.Fill(block, byte(i), size))
		case 1:
			testkit.Must(t, p.CopyInAsync(a, block, src))
		case 2:
			testkit.Must(t, a.Copy(block+size, block, size))
			testkit.Must(t, p.CopyInAsync(a, block+3, src[3:100]))
			testkit.Must(t, a.Copy(block, block+size, size))
		}
		if i%2 == 0 {
			testkit.Must(t, p.CopyOutAsync(a, out, block))
			continue
		}
		testkit.Must(t, b.WaitFor(a, mustMark(t, a)))
		testkit.Must(t, p.CopyOutAsync(b, out, block))
		testkit.Must(t, a.WaitFor(b, mustMark(t, b)))
	}
	syncAll(t, a, b)
	for i := range rounds {
		expect := want
		if i%3 == 0 {
			expect = bytes.Repeat([]byte{byte(i)}, size)
		}
		if !bytes.Equal(dst[i*size:(i+1)*size], expect) {
			t.Errorf("round %d: other bytes came out", i)
		}
	}

	// FreeHost waits for what is queued.
	testkit.Must(t, a.Fill(block, 0, size))
	testkit.Must(t, p.CopyInAsync(a, block, src))
	testkit.Must(t, p.FreeHost(src))
	wantBytes(t, a, block, want)
	testkit.Must(t, p.FreeHost(dst))
	testkit.Must(t, d.Free(block))
}

func testPinnedMisuse(t *testing.T, open openFunc) {
	d, foreign := open(t), open(t)
	p := d.Pinned()
	if p == nil {
		return
	}
	s := d.DefaultStream()
	block := Alloc(t, d, 4096)
	want := Noise(10, 4096)
	testkit.Must(t, s.CopyIn(block, want))
	b, heap, theirs := mustPin(t, p, 4096), make([]byte, 4096), mustPin(t, foreign.Pinned(), 4096)

	WantErr(t, "CopyInAsync from Go's memory", p.CopyInAsync(s, block, heap), driver.ErrInvalid)
	WantErr(t, "CopyOutAsync to Go's memory", p.CopyOutAsync(s, heap, block), driver.ErrInvalid)
	if p.IsPinned(theirs) {
		t.Error("another device's memory is page-locked memory of this device")
	}
	WantErr(t, "CopyInAsync from another device's memory", p.CopyInAsync(s, block, theirs), driver.ErrInvalid)
	for what, not := range map[string][]byte{
		"Go's memory": heap, "the first half": b[:2048], "the second half": b[2048:], "nothing": nil,
		"another device's memory": theirs,
	} {
		WantErr(t, "FreeHost of "+what, p.FreeHost(not), driver.ErrInvalid)
		WantErr(t, "Unregister of "+what, p.Unregister(not), driver.ErrInvalid)
	}
	WantErr(t, "Unregister of what AllocHost returned", p.Unregister(b), driver.ErrInvalid)
	WantErr(t, "Register of what AllocHost returned", p.Register(b), driver.ErrInvalid)
	wantPanic(t, "AllocHost(-1)", func() error { _, err := p.AllocHost(-1); return err })
	wantRefused(t, "AllocHost(0)", func() error { _, err := p.AllocHost(0); return err })
	_, err := p.AllocHost(1 << 62)
	WantErr(t, "AllocHost of 4 EiB", err, driver.ErrNoMemory)
	wantPanic(t, "CopyInAsync on a nil stream", func() error { return p.CopyInAsync(nil, block, b) })
	wantPanic(t, "CopyOutAsync on a stream of another device", func() error {
		return p.CopyOutAsync(foreign.DefaultStream(), b, block)
	})

	wantBytes(t, s, block, want)
	testkit.Must(t, p.FreeHost(b))
	WantErr(t, "FreeHost twice", p.FreeHost(b), driver.ErrInvalid)
	if p.IsPinned(b) {
		t.Error("memory is page-locked after FreeHost")
	}
	WantErr(t, "CopyInAsync from what was freed", p.CopyInAsync(s, block, b), driver.ErrInvalid)
	testkit.Must(t, foreign.Pinned().FreeHost(theirs))
	testkit.Must(t, d.Free(block))
}

// outside is memory outside Go's heap: package-level variables without pointers lie in the program's own data.
var outside [3 << 16]byte

func testRegistered(t *testing.T, open openFunc) {
	d := open(t)
	p := d.Pinned()
	if p == nil {
		return
	}
	s := NewStream(t, d)
	b := outside[1<<16 : 2<<16]
	block := Alloc(t, d, 1<<16)
	for range 2 { // what was given back can be registered again
		if p.IsPinned(b) {
			t.Fatal("memory is page-locked before Register")
		}
		WantErr(t, "CopyInAsync before Register", p.CopyInAsync(s, block, b), driver.ErrInvalid)
		testkit.Must(t, p.Register(b))
		if !p.IsPinned(b) || !p.IsPinned(b[100:200]) || p.IsPinned(outside[:1<<16+1]) {
			t.Errorf("IsPinned of what was registered: all %v, part %v, and more %v",
				p.IsPinned(b), p.IsPinned(b[100:200]), p.IsPinned(outside[:1<<16+1]))
		}
		WantErr(t, "Register twice", p.Register(b), driver.ErrInvalid)
		WantErr(t, "FreeHost of what was registered", p.FreeHost(b), driver.ErrInvalid)
		WantErr(t, "Unregister of a part", p.Unregister(b[:4096]), driver.ErrInvalid)
		want := Noise(11, len(b))
		copy(b, want)
		testkit.Must(t, p.CopyInAsync(s, block, b))
		testkit.Must(t, s.Sync(context.Background()))
		clear(b)
		testkit.Must(t, p.CopyOutAsync(s, b, block))
		testkit.Must(t, p.Unregister(b)) // waits
		if !bytes.Equal(b, want) {
			t.Error("other bytes came back into registered memory")
		}
		WantErr(t, "Unregister twice", p.Unregister(b), driver.ErrInvalid)
	}
	WantErr(t, "Register of nothing", p.Register(nil), driver.ErrInvalid)
	testkit.Must(t, d.Free(block))
}
