//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/paged"
)

func TestPeers(t *testing.T) {
	for name, o := range map[string]fakecuda.Options{
		"linked": {Granularity: 64 << 10}, "not linked": {Unlinked: true}, "background": {Pace: fakecuda.Background},
	} {
		for pair, specs := range map[string][2]string{"two devices": {"0", "1"}, "one device twice": {"0", "0"}} {
			t.Run(name+"/"+pair, func(t *testing.T) {
				m := newMachine(t, o)
				c := driverOf(m)
				drivertest.RunPeers(t, func(t testing.TB) (a, b driver.Device) {
					a, err := c.Open(specs[0])
					testkit.Must(t, err)
					b, err = c.Open(specs[1])
					testkit.Must(t, err)
					return a, b
				})
			})
		}
	}
}

// TestPeersOpenedTwice: access lasts until both holds on it are given up, one of them by Close.
func TestPeersOpenedTwice(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	again, other := openOn(t, r.m, "0"), openOn(t, r.m, "1")
	r.ok(r.d.Peers().Enable(other))
	r.ok(again.Peers().Enable(other))
	r.ok(again.Peers().Enable(other)) // counts once
	r.ok(again.Peers().Disable(other))
	r.ok(again.Peers().Disable(other))
	if n := r.m.Calls("cuCtxDisablePeerAccess"); n != 0 {
		t.Fatal("access was taken from the one by the other")
	}
	r.ok(again.Peers().Enable(other))
	r.ok(r.d.Peers().Disable(other))
	r.ok(again.Close())
	if n := r.m.Calls("cuCtxDisablePeerAccess"); n != 1 {
		t.Errorf("access was taken back %d times", n)
	}
	r.ok(r.d.Peers().Enable(other))
	r.ok(other.Close())
	r.ok(r.d.Peers().Disable(other)) // though its context is gone
	r.wantErr("Enable of a closed device", r.d.Peers().Enable(other), driver.ErrClosed)
	r.wantErr("CopyPeer from a closed device",
		r.d.Peers().CopyPeer(r.d.DefaultStream(), r.alloc(64), r.d, 64, other, 64), driver.ErrClosed)
	third := openOn(t, r.m, "1")
	r.ok(r.d.Peers().Enable(third)) // with a context that may lie where the other's did
}

// TestCopyPeerOfVirtualMemory: Enable says nothing of it, and Share does.
func TestCopyPeerOfVirtualMemory(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	other := openOn(t, r.m, "1")
	vm, size := other.VirtualMemory(), other.info.Granularity
	page, err := vm.Create(size)
	r.ok(err)
	at, err := vm.Reserve(size)
	r.ok(err)
	r.ok(vm.Map(at, page))
	want := drivertest.Noise(5, 3000)
	r.ok(other.zero.CopyIn(at, want))
	syncOf(t, other.zero)
	p, s := r.alloc(4000), r.stream()
	r.ok(r.d.Peers().Enable(other)) // which says nothing of virtual memory
	r.ok(r.d.Peers().CopyPeer(s, p, r.d, at, other, 3000))
	r.holds(s, p, want)
	r.ok(r.d.Peers().CopyPeer(s, at+1, other, p, r.d, 2999))
	syncOf(t, s)
	r.holds(other.zero, at, append(want[:1:1], want[:2999]...))

	r.ok(other.Peers().Share(at, size, r.d, other))
	r.ok(s.Copy(p, at, 100)) // now ordinary work of the other reaches it
	r.holds(s, p, append(want[:1:1], want[:99]...))
	r.wantErr("Share of half a page", other.Peers().Share(at, size/2, r.d), driver.ErrInvalid)
	r.wantErr("Share of a block", r.d.Peers().Share(p, 4000, other), driver.ErrInvalid)
	calls := r.m.Calls("cuMemSetAccess")
	r.ok(other.Peers().Share(at, size))
	r.ok(other.Peers().Share(at, size, other))
	if r.m.Calls("cuMemSetAccess") != calls {
		t.Error("Share without other devices calls libcuda")
	}
}

// TestDefect12_AllocatorsMapForPeers: allocators that map pages share them with the devices that have access to them.
func TestDefect12_AllocatorsMapForPeers(t *testing.T) {
	for name, spec := range map[string]string{"another device": "1", "the same twice": "0"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fakecuda.Options{})
			other := openOn(t, r.m, spec)
			cfg, _, err := caching.ParseConfig("expandable_segments:True")
			r.ok(err)
			expanding, err := caching.New(r.d, cfg)
			r.ok(err)
			remapping, err := paged.New(r.d, paged.Config{})
			r.ok(err)
			for _, a := range []interface {
				mem.Allocator
				Close() error
			}{expanding, remapping} {
				s := r.d.DefaultStream()
				before, err := a.Alloc(s, 100<<10)
				r.ok(err)
				r.ok(mem.EnablePeer(other, r.d, a))
				after, err := a.Alloc(s, 10<<20)
				r.ok(err)
				for _, b := range []mem.Block{before, after} {
					end := b.Ptr + driver.Pointer(b.Size-64)
					staged := r.m.Staged()
					r.ok(other.zero.Fill(end, 7, 64))
					syncOf(t, other.zero)
					if r.m.Staged() != staged {
						t.Errorf("the other device does not reach %#x by itself", b.Ptr)
					}
					r.holds(s, end, bytes.Repeat([]byte{7}, 64))
					a.Free(b)
				}
				r.ok(a.Close())
			}
		})
	}
}

func TestShareIsRefusedWithoutALink(t *testing.T) {
	r := newRig(t, fakecuda.Options{Unlinked: true})
	other := openOn(t, r.m, "1")
	vm, size := r.d.VirtualMemory(), r.d.info.Granularity
	page, err := vm.Create(size)
	r.ok(err)
	at, err := vm.Reserve(size)
	r.ok(err)
	r.ok(vm.Map(at, page))
	r.wantErr("Share", r.d.Peers().Share(at, size, other), driver.ErrUnsupported)
}

func TestPeersOfOtherDriversPanic(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	foreign, err := host.Open(host.Options{Total: 1 << 20})
	r.ok(err)
	defer foreign.Close()
	for what, call := range map[string]func(){
		"CanAccess": func() { _, _ = r.d.Peers().CanAccess(foreign) },
		"Enable":    func() { _ = r.d.Peers().Enable(nil) },
		"Disable":   func() { _ = r.d.Peers().Disable((*device)(nil)) },
		"CopyPeer":  func() { _ = r.d.Peers().CopyPeer(r.d.zero, 1, foreign, 2, r.d, 3) },
		"Share":     func() { _ = r.d.Peers().Share(0, 0, foreign) },
	} {
		testkit.WantPanic(t, what, "driver/cuda: Peers."+what, call)
	}
}

// TestFailedPeerCalls change nothing.
func TestFailedPeerCalls(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	other := openOn(t, r.m, "1")
	peers := r.d.Peers()
	r.m.Fail("cuCtxEnablePeerAccess", 1, fakecuda.OutOfMemory)
	r.wantErr("Enable", peers.Enable(other), driver.ErrNoMemory)
	r.ok(peers.Disable(other))
	r.ok(peers.Enable(other))
	r.m.Fail("cuCtxDisablePeerAccess", 1, fakecuda.OutOfMemory)
	r.wantErr("Disable", peers.Disable(other), driver.ErrNoMemory)
	r.ok(peers.Disable(other))
	if n := r.m.Calls("cuCtxDisablePeerAccess"); n != 2 {
		t.Errorf("disabled %d times, want the one that failed and one more", n)
	}
	r.m.Fail("cuDeviceCanAccessPeer", 1, fakecuda.InvalidDevice)
	_, err := peers.CanAccess(other)
	r.wantErr("CanAccess", err, driver.ErrAbsent)
	p, err := other.Alloc(64)
	r.ok(err)
	q := r.alloc(64)
	r.ok(other.zero.Fill(p, 3, 64))
	syncOf(t, other.zero)
	r.m.Fail("cuMemcpyPeerAsync", 1, fakecuda.OutOfMemory)
	s := r.stream()
	r.wantErr("CopyPeer", peers.CopyPeer(s, q, r.d, p, other, 64), driver.ErrNoMemory)
	r.ok(peers.CopyPeer(s, q, r.d, p, other, 64))
	r.holds(s, q, bytes.Repeat([]byte{3}, 64))
	r.wantErr("CopyPeer of another's memory", peers.CopyPeer(s, q, r.d, p+1, other, 64), driver.ErrInvalid)
}
