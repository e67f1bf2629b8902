//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// BenchmarkCopy measures copies of ordinary memory both ways (ashlar), of page-locked memory (pinned), and what libcuda
// does with ordinary memory by itself (direct). Each copy is waited for.
func BenchmarkCopy(b *testing.B) {
	d := drivertest.OpenDevice(b, "cuda:0")
	s := drivertest.NewStream(b, d)
	const most = 1 << 30
	p := drivertest.Alloc(b, d, most)
	locked, err := d.Pinned().AllocHost(most)
	testkit.Must(b, err)
	ordinary := make([]byte, most)
	copy(ordinary, drivertest.Noise(1, 1<<20))
	for i := 1 << 20; i < most; i *= 2 { // touched: the operating system has given its pages
		copy(ordinary[i:], ordinary[:i])
	}
	sync := func(b *testing.B) { testkit.Must(b, s.Sync(context.Background())) }
	direct := newDirectCopier(b)
	for _, size := range []int{
		1 << 10, 4 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, most,
	} {
		for _, c := range []struct {
			name string
			copy func(b *testing.B)
		}{
			{"in/ashlar", func(b *testing.B) { testkit.Must(b, s.CopyIn(p, ordinary[:size])); sync(b) }},
			{"in/pinned", func(b *testing.B) { testkit.Must(b, d.Pinned().CopyInAsync(s, p, locked[:size])); sync(b) }},
			{"in/direct", func(b *testing.B) { direct.in(b, uint64(p), ordinary[:size]) }},
			{"out/ashlar", func(b *testing.B) { testkit.Must(b, s.CopyOut(ordinary[:size], p)) }},
			{"out/pinned", func(b *testing.B) {
				testkit.Must(b, d.Pinned().CopyOutAsync(s, locked[:size], p))
				sync(b)
			}},
			{"out/direct", func(b *testing.B) { direct.out(b, ordinary[:size], uint64(p)) }},
		} {
			b.Run(fmt.Sprintf("%s/%dKiB", c.name, size>>10), func(b *testing.B) {
				c.copy(b)
				b.SetBytes(int64(size))
				for b.Loop() {
					c.copy(b)
				}
			})
		}
	}
}

// BenchmarkCopyInOnly is CopyIn without waiting for the device: until the slice may be reused.
func BenchmarkCopyInOnly(b *testing.B) {
	d := drivertest.OpenDevice(b, "cuda:0")
	s := drivertest.NewStream(b, d)
	p := drivertest.Alloc(b, d, 64<<20)
	direct := newDirectCopier(b)
	for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		src := drivertest.Noise(1, size)
		b.Run(fmt.Sprintf("ashlar/%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				testkit.Must(b, s.CopyIn(p, src))
			}
			testkit.Must(b, s.Sync(context.Background()))
		})
		b.Run(fmt.Sprintf("direct/%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				direct.queueIn(b, uint64(p), src)
			}
			direct.sync(b)
		})
	}
}

// A directCopier calls libcuda as a program without staging of its own would, on a stream of its own.
type directCopier struct {
	lib *cu.Lib
	ctx cu.Context
	s   cu.Stream
}

func newDirectCopier(b *testing.B) *directCopier {
	lib, _, err := cu.Open()
	testkit.Must(b, err)
	device, r := lib.DeviceGet(0)
	succeeded(b, r)
	c := &directCopier{lib: lib}
	c.ctx, r = lib.PrimaryCtxRetain(device)
	succeeded(b, r)
	b.Cleanup(func() { succeeded(b, lib.PrimaryCtxRelease(device)) })
	c.with(b, func() cu.Result {
		var r cu.Result
		c.s, r = lib.StreamCreate(cu.StreamNonBlocking, 0)
		return r
	})
	return c
}

func succeeded(b *testing.B, r cu.Result) {
	b.Helper()
	if r != cu.Success {
		b.Fatalf("libcuda: %d", r)
	}
}

func (c *directCopier) with(b *testing.B, f func() cu.Result) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	succeeded(b, c.lib.CtxSetCurrent(c.ctx))
	succeeded(b, f())
}

func (c *directCopier) queueIn(b *testing.B, dst uint64, src []byte) {
	c.with(b, func() cu.Result {
		return c.lib.MemcpyHtoDAsync(dst, uintptr(unsafe.Pointer(&src[0])), int64(len(src)), c.s)
	})
}

func (c *directCopier) sync(b *testing.B) {
	c.with(b, func() cu.Result { return c.lib.StreamSynchronize(c.s) })
}

func (c *directCopier) in(b *testing.B, dst uint64, src []byte) {
	c.queueIn(b, dst, src)
	c.sync(b)
}

func (c *directCopier) out(b *testing.B, dst []byte, src uint64) {
	c.with(b, func() cu.Result { return c.lib.MemcpyDtoH(dst, src) })
}
