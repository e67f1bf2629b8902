//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// openGPUs opens every device that Devices lists.
func openGPUs(t testing.TB) []driver.Device {
	t.Helper()
	listings, err := driver.Lookup("cuda").Devices()
	testkit.Must(t, err)
	var devices []driver.Device
	for _, l := range listings {
		d, err := driver.Open(l.Spec)
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, d.Close()) })
		devices = append(devices, d)
	}
	return devices
}

// TestGPUCopies copies ordinary memory of odd sizes from odd addresses to odd addresses and back.
func TestGPUCopies(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := drivertest.NewStream(t, d)
	const room = 72 << 20
	p := drivertest.Alloc(t, d, room)
	for _, size := range []int{
		1, 3, 4095, 64 << 10, 64<<10 + 1, 128<<10 - 1, 1<<20 + 13, 2 << 20, 4<<20 - 1, 4<<20 + 1, 9<<20 + 5, 64<<20 + 7,
	} {
		for _, offset := range []int{0, 1, 63, 4097} {
			src := drivertest.Noise(uint64(size+offset), size+offset)[offset:]
			got := make([]byte, size+offset+1)
			testkit.Must(t, s.Fill(p, 0xee, int64(size+2*offset+2)))
			testkit.Must(t, s.CopyIn(p+driver.Pointer(offset), src))
			want := bytes.Clone(src)
			clear(src) // it may be reused
			testkit.Must(t, s.CopyOut(got[offset:offset+size], p+driver.Pointer(offset)))
			if !bytes.Equal(got[offset:offset+size], want) {
				t.Errorf("%d bytes at offset %d: other bytes came back", size, offset)
			}
			if got[offset+size] != 0 {
				t.Errorf("%d bytes at offset %d: written beyond the end on the host", size, offset)
			}
			edge := make([]byte, 1)
			testkit.Must(t, s.CopyOut(edge, p+driver.Pointer(offset+size)))
			if edge[0] != 0xee {
				t.Errorf("%d bytes at offset %d: written beyond the end on the device", size, offset)
			}
		}
	}
}

// TestGPUCopyGibibyte is the size at which every area is used many times.
func TestGPUCopyGibibyte(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	const size = 1 << 30
	p := drivertest.Alloc(t, d, size)
	s := d.DefaultStream()
	src := drivertest.Noise(1, size)
	testkit.Must(t, s.CopyIn(p, src))
	got := make([]byte, size)
	testkit.Must(t, s.CopyOut(got, p))
	if !bytes.Equal(got, src) {
		t.Fatal("other bytes came back")
	}
	testkit.Must(t, d.Free(p))
}

// TestGPUCopiesAtOnce has several streams copy both ways, more than there are areas for.
func TestGPUCopiesAtOnce(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	const size = 48<<20 + 11
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for g := range errs {
		wg.Go(func() {
			s, err := d.NewStream(driver.StreamOptions{})
			if err != nil {
				errs[g] = err
				return
			}
			p, err := d.Alloc(size)
			if err != nil {
				errs[g] = err
				return
			}
			want, got := drivertest.Noise(uint64(g), size), make([]byte, size)
			for range 3 {
				if errs[g] = errors.Join(s.CopyIn(p, want), s.CopyOut(got, p)); errs[g] != nil {
					return
				}
				if !bytes.Equal(got, want) {
					errs[g] = fmt.Errorf("copy %d: other bytes came back", g)
					return
				}
			}
			errs[g] = errors.Join(s.Close(), d.Free(p))
		})
	}
	wg.Wait()
	testkit.Must(t, errors.Join(errs...))
}

// TestGPUCopyOrder has a copy in between kernels of its stream: each sees what was before it.
func TestGPUCopyOrder(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := drivertest.NewStream(t, d)
	const size = 16 << 20
	p := drivertest.Alloc(t, d, 2*size)
	q := p + size
	src := drivertest.Noise(3, size)
	for i := range 5 {
		for range 20 {
			testkit.Must(t, s.Fill(p, byte(i), size))
		}
		src[0] = byte(100 + i)
		testkit.Must(t, s.CopyIn(p, src))
		testkit.Must(t, s.Copy(q, p, size))
		testkit.Must(t, s.Fill(p, 0xff, size))
		got := make([]byte, size)
		testkit.Must(t, s.CopyOut(got, q))
		if !bytes.Equal(got, src) {
			t.Fatalf("round %d: other bytes came back", i)
		}
	}
	testkit.Must(t, s.Sync(context.Background()))
}
