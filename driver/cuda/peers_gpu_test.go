//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// TestGPUPeers copies between all devices of the machine; with one, between that and itself.
func TestGPUPeers(t *testing.T) {
	devices := openGPUs(t)
	const size = 5<<20 + 3
	for _, from := range devices {
		for _, to := range devices {
			peers := to.Peers()
			linked, err := peers.CanAccess(from)
			testkit.Must(t, err)
			src, err := from.Alloc(size)
			testkit.Must(t, err)
			dst, err := to.Alloc(size)
			testkit.Must(t, err)
			want := drivertest.Noise(uint64(src), size)
			testkit.Must(t, from.DefaultStream().CopyIn(src, want))
			testkit.Must(t, from.DefaultStream().Sync(context.Background()))
			got := make([]byte, size)
			copied := func(how string) {
				t.Helper()
				s := to.DefaultStream()
				testkit.Must(t, s.Fill(dst, 0, size))
				testkit.Must(t, peers.CopyPeer(s, dst, to, src, from, size))
				testkit.Must(t, s.CopyOut(got, dst))
				if !bytes.Equal(got, want) {
					t.Errorf("device %d to %d, %s: other bytes came", from.Info().Ordinal, to.Info().Ordinal, how)
				}
			}
			copied("before Enable")
			err = peers.Enable(from)
			if linked != (err == nil) || (!linked && !errors.Is(err, driver.ErrUnsupported)) {
				t.Errorf("CanAccess is %v and Enable says %v", linked, err)
			}
			if linked {
				testkit.Must(t, peers.Enable(from))
				copied("enabled")
				f := gpuFunction(t, to, "fill") // work there on memory here
				testkit.Must(t, to.Kernels().Launch(to.DefaultStream(), fillKernel(f, src, 1000, 7, 9)))
				testkit.Must(t, to.DefaultStream().Sync(context.Background()))
				wantFilled(t, from.DefaultStream(), src, 1000, 7, 9)
				testkit.Must(t, from.DefaultStream().CopyIn(src, want))
				testkit.Must(t, from.DefaultStream().Sync(context.Background()))
				testkit.Must(t, peers.Disable(from))
			}
			testkit.Must(t, peers.Disable(from))
			copied("after Disable")
			testkit.Must(t, errors.Join(from.Free(src), to.Free(dst)))
		}
	}
}

// TestGPUPeersSuite runs the suite on two devices, or with one on that and itself.
func TestGPUPeersSuite(t *testing.T) {
	listings, err := driver.Lookup("cuda").Devices()
	testkit.Must(t, err)
	drivertest.RunPeers(t, func(t testing.TB) (a, b driver.Device) {
		a, err := driver.Open(listings[0].Spec)
		testkit.Must(t, err)
		b, err = driver.Open(listings[len(listings)-1].Spec)
		testkit.Must(t, err)
		return a, b
	})
}

// TestGPUShare lets every linked device work on mapped pages of another.
func TestGPUShare(t *testing.T) {
	devices := openGPUs(t)
	for _, owner := range devices {
		for _, other := range devices {
			linked, err := other.Peers().CanAccess(owner)
			testkit.Must(t, err)
			if !linked {
				continue
			}
			vm, size := owner.VirtualMemory(), owner.Info().Granularity
			p, err := vm.Reserve(2 * size)
			testkit.Must(t, err)
			a, err := vm.Create(size)
			testkit.Must(t, err)
			b, err := vm.Create(size)
			testkit.Must(t, err)
			testkit.Must(t, vm.Map(p, a, b))
			testkit.Must(t, owner.Peers().Share(p, 2*size, other))
			if err := owner.Peers().Share(p+1, size, other); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("Share of part of a page: %v, want ErrInvalid", err)
			}
			f := gpuFunction(t, other, "fill")
			testkit.Must(t, other.Kernels().Launch(other.DefaultStream(), fillKernel(f, p, uint32(2*size/4), 11, 13)))
			testkit.Must(t, other.DefaultStream().Sync(context.Background()))
			wantFilled(t, owner.DefaultStream(), p, uint32(2*size/4), 11, 13)
			testkit.Must(t, errors.Join(vm.Unmap(p, 2*size), vm.Drop(a), vm.Drop(b), vm.Release(p, 2*size)))
		}
	}
}

// TestGPUDefect12_AllocatorsMapForPeers lets kernels of every linked device work on memory that allocators of another
// map.
func TestGPUDefect12_AllocatorsMapForPeers(t *testing.T) {
	devices := openGPUs(t)
	cfg, _, err := caching.ParseConfig("expandable_segments:True")
	testkit.Must(t, err)
	for _, owner := range devices {
		for _, other := range devices {
			linked, err := other.Peers().CanAccess(owner)
			testkit.Must(t, err)
			if !linked && other != owner {
				continue
			}
			expanding, err := caching.New(owner, cfg)
			testkit.Must(t, err)
			remapping, err := paged.New(owner, paged.Config{})
			testkit.Must(t, err)
			f := gpuFunction(t, other, "fill")
			for _, a := range []interface {
				mem.Allocator
				Close() error
			}{expanding, remapping} {
				before, err := a.Alloc(owner.DefaultStream(), 4<<20)
				testkit.Must(t, err)
				testkit.Must(t, mem.EnablePeer(other, owner, a))
				after, err := a.Alloc(owner.DefaultStream(), 100<<20)
				testkit.Must(t, err)
				for _, b := range []mem.Block{before, after} {
					end := b.Ptr + driver.Pointer(b.Size-4000)
					testkit.Must(t, other.Kernels().Launch(other.DefaultStream(), fillKernel(f, end, 1000, 11, 13)))
					testkit.Must(t, other.DefaultStream().Sync(context.Background()))
					wantFilled(t, owner.DefaultStream(), end, 1000, 11, 13)
					a.Free(b)
				}
				testkit.Must(t, a.Close())
			}
		}
	}
}
