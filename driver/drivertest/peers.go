package drivertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// RunPeers tests Peers between two devices of one driver. It calls open for every subtest; the suite closes the
// devices. A driver without peers, or with devices that are not linked, passes too: what it lacks is asserted to be
// absent.
func RunPeers(t *testing.T, open func(t testing.TB) (a, b driver.Device)) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, driver.Device, driver.Device)
	}{
		{"CopyPeer", testCopyPeer},
		{"Enable", testEnablePeer},
		{"Share", testSharePages},
		{"Misuse", testPeerMisuse},
		{"Concurrent", testPeersConcurrent},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := open(t)
			t.Cleanup(func() { testkit.Must(t, errors.Join(a.Close(), b.Close())) })
			if (a.Peers() == nil) != (b.Peers() == nil) {
				t.Fatal("one of the devices has peers and the other has not")
			}
			if a.Peers() != nil {
				test.run(t, a, b)
			}
		})
	}
}

// linked enables a to use b's memory, and reports false if the devices say that they are not linked.
func linked(t testing.TB, a, b driver.Device) bool {
	t.Helper()
	can, err := a.Peers().CanAccess(b)
	testkit.Must(t, err)
	err = a.Peers().Enable(b)
	if !can {
		WantErr(t, "Enable of a device that is not linked", err, driver.ErrUnsupported)
		return false
	}
	testkit.Must(t, err)
	return true
}

// testCopyPeer copies in all directions, from streams of either end, with nothing enabled.
func testCopyPeer(t *testing.T, a, b driver.Device) {
	const size = 100_001
	pa := Alloc(t, a, 2*size)
	pb := Alloc(t, b, 2*size)
	for i, on := range []driver.Device{a, b} {
		s := NewStream(t, on)
		peers := on.Peers()
		want := Noise(uint64(300+i), 2*size)
		testkit.Must(t, a.DefaultStream().CopyIn(pa, want))
		testkit.Must(t, a.DefaultStream().Sync(context.Background()))
		testkit.Must(t, peers.CopyPeer(s, pb, b, pa, a, size))
		testkit.Must(t, peers.CopyPeer(s, pb+size+1, b, pa+size+1, a, size-1))
		testkit.Must(t, peers.CopyPeer(s, pb+size, b, pa+size, a, 1))
		testkit.Must(t, peers.CopyPeer(s, 0, b, 0, a, 0)) // no bytes are nowhere
		testkit.Must(t, s.Sync(context.Background()))
		wantBytes(t, b.DefaultStream(), pb, want)

		// And back, in order with other work of the stream.
		own, p := a, pa
		if on == b {
			own, p = b, pb
		}
		testkit.Must(t, s.Fill(p, 0, size))
		testkit.Must(t, peers.CopyPeer(s, pa+size, a, pb, b, size))
		testkit.Must(t, peers.CopyPeer(s, p, own, p+size, own, size)) // both ends may be one device
		testkit.Must(t, s.Sync(context.Background()))
		if on == a {
			wantBytes(t, a.DefaultStream(), pa, append(want[:size:size], want[:size]...))
		} else { // b cleared the half that a got, and then copied its own second half over it
			wantBytes(t, a.DefaultStream(), pa+size, make([]byte, size))
			wantBytes(t, b.DefaultStream(), pb, append(want[size:2*size:2*size], want[size:]...))
		}
		testkit.Must(t, s.Close())
	}
	testkit.Must(t, errors.Join(a.Free(pa), b.Free(pb)))
}

// testEnablePeer uses what the other device allocated before and after, as if it were one's own.
func testEnablePeer(t *testing.T, a, b driver.Device) {
	const size = 10_000
	before := Alloc(t, b, size)
	if !linked(t, a, b) {
		testkit.Must(t, b.Free(before))
		return
	}
	testkit.Must(t, a.Peers().Enable(b)) // twice is as good
	after := Alloc(t, b, size)
	p := Alloc(t, a, size)
	s := a.DefaultStream()
	for i, theirs := range []driver.Pointer{before, after} {
		want := Noise(uint64(310+i), size)
		testkit.Must(t, b.DefaultStream().CopyIn(theirs, want))
		testkit.Must(t, b.DefaultStream().Sync(context.Background()))
		testkit.Must(t, s.Copy(p, theirs, size))
		wantBytes(t, s, p, want)
		testkit.Must(t, s.Fill(p, byte(50+i), size))
		testkit.Must(t, s.Copy(theirs+100, p, size-200))
		testkit.Must(t, s.Sync(context.Background()))
		for j := 100; j < size-100; j++ {
			want[j] = byte(50 + i)
		}
		wantBytes(t, b.DefaultStream(), theirs, want)
	}
	testkit.Must(t, a.Peers().Disable(b))
	testkit.Must(t, a.Peers().Disable(b))
	testkit.Must(t, a.Peers().CopyPeer(s, p, a, before, b, size)) // which needs nothing enabled
	testkit.Must(t, s.Sync(context.Background()))
	testkit.Must(t, a.Peers().Enable(b))
	testkit.Must(t, s.Copy(p, before, size))
	testkit.Must(t, s.Sync(context.Background()))
	testkit.Must(t, errors.Join(a.Free(p), b.Free(before), b.Free(after)))
}

// testSharePages lets b work in mapped pages of a.
func testSharePages(t *testing.T, a, b driver.Device) {
	vm, size := a.VirtualMemory(), a.Info().Granularity
	if vm == nil {
		WantErr(t, "Share without virtual memory", a.Peers().Share(1<<20, 4096, b), driver.ErrInvalid)
		return
	}
	p, err := vm.Reserve(3 * size)
	testkit.Must(t, err)
	one, err := vm.Create(size)
	testkit.Must(t, err)
	two, err := vm.Create(2 * size)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(p, one, two))
	for what, r := range map[string]driver.Range{
		"half of a page":           {Ptr: p + driver.Pointer(size), Size: size},
		"from the middle of one":   {Ptr: p + driver.Pointer(2*size), Size: size},
		"what is not mapped":       {Ptr: p, Size: 4 * size},
		"nothing":                  {Ptr: p, Size: 0},
		"addresses between pages":  {Ptr: p + 1, Size: size},
		"addresses of no mappings": {Ptr: 1 << 20, Size: size},
	} {
		wantRefused(t, "Share of "+what, func() error { return a.Peers().Share(r.Ptr, r.Size, b) })
	}
	if err := a.Peers().Share(p, 3*size, b); err != nil {
		WantErr(t, "Share with a device that is not linked", err, driver.ErrUnsupported)
	} else {
		testkit.Must(t, a.Peers().Share(p, size, b)) // twice is as good
		s := b.DefaultStream()
		mine := Alloc(t, b, 4096)
		want := Noise(320, 4096)
		testkit.Must(t, s.CopyIn(mine, want))
		across := p + driver.Pointer(size-2048)
		testkit.Must(t, s.Copy(across, mine, 4096))
		testkit.Must(t, s.Sync(context.Background()))
		wantBytes(t, a.DefaultStream(), across, want)
		testkit.Must(t, a.DefaultStream().Fill(across, 3, 100))
		testkit.Must(t, a.DefaultStream().Sync(context.Background()))
		testkit.Must(t, s.Copy(mine, across, 4096))
		copy(want, []byte{99: 0})
		for i := range 100 {
			want[i] = 3
		}
		wantBytes(t, s, mine, want)
		testkit.Must(t, b.Free(mine))
	}
	testkit.Must(t, errors.Join(vm.Unmap(p, 3*size), vm.Drop(one), vm.Drop(two), vm.Release(p, 3*size)))
}

func testPeerMisuse(t *testing.T, a, b driver.Device) {
	pa := Alloc(t, a, 4096)
	pb := Alloc(t, b, 4096)
	s, peers := a.DefaultStream(), a.Peers()
	want := Noise(330, 4096)
	testkit.Must(t, b.DefaultStream().CopyIn(pb, want))
	testkit.Must(t, b.DefaultStream().Sync(context.Background()))
	wantRefused(t, "CopyPeer between places of another device", func() error {
		return peers.CopyPeer(s, pb, b, pb+2048, b, 8)
	})
	wantPanic(t, "CopyPeer on a nil stream", func() error { return peers.CopyPeer(nil, pa, a, pb, b, 8) })
	wantPanic(t, "CopyPeer on a stream of another device", func() error {
		return peers.CopyPeer(b.DefaultStream(), pa, a, pb, b, 8)
	})
	wantPanic(t, "CopyPeer of -1 bytes", func() error { return peers.CopyPeer(s, pa, a, pb, b, -1) })
	wantPanic(t, "CanAccess of no device", func() error { _, err := peers.CanAccess(nil); return err })
	wantPanic(t, "Enable of no device", func() error { return peers.Enable(nil) })
	testkit.Must(t, s.CopyIn(pa, want))
	for _, by := range overlaps(1024) {
		what := fmt.Sprintf("CopyPeer of 1024 bytes by %d", by)
		WantErr(t, what, peers.CopyPeer(s, pa+1024+driver.Pointer(by), a, pa+1024, a, 1024), driver.ErrInvalid)
	}
	wantBytes(t, s, pa, want)
	wantBytes(t, b.DefaultStream(), pb, want)
	testkit.Must(t, errors.Join(a.Free(pa), b.Free(pb)))
}

// testPeersConcurrent copies back and forth from many goroutines, while access is given and taken.
func testPeersConcurrent(t *testing.T, a, b driver.Device) {
	parallel(t, 8, func(g int) error {
		own, other := a, b
		if g%2 == 1 {
			own, other = b, a
		}
		s, err := own.NewStream(driver.StreamOptions{})
		if err != nil {
			return err
		}
		p, err := own.Alloc(8192)
		if err != nil {
			return err
		}
		q, err := other.Alloc(8192)
		if err != nil {
			return err
		}
		for round := range 20 {
			want, got := Noise(uint64(100*g+round+1), 8192), make([]byte, 8192)
			err := errors.Join(
				s.CopyIn(p, want), own.Peers().CopyPeer(s, q, other, p, own, 8192), s.Fill(p, 0, 8192),
				own.Peers().CopyPeer(s, p, own, q, other, 8192), s.CopyOut(got, p),
			)
			if err == nil && string(got) != string(want) {
				err = errors.New("other bytes came back from a peer")
			}
			if can, e := own.Peers().CanAccess(other); e != nil {
				err = errors.Join(err, e)
			} else if can {
				err = errors.Join(err, own.Peers().Enable(other), own.Peers().Disable(other))
			}
			if err != nil {
				return err
			}
		}
		return errors.Join(s.Close(), own.Free(p), other.Free(q))
	})
}
