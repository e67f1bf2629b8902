//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// ptx has three kernels. fill sets word i of p to i*factor+seed, for i below n. mixed stores its parameters of every
// size, one after the other. last writes a word to the end of its dynamic shared memory and copies it to p.
const ptx = `
.version 6.4
.target sm_75
.address_size 64

.extern .shared .align 16 .b8 dynamic[];

.visible .entry fill(.param .u64 p, .param .u32 n, .param .u32 factor, .param .u32 seed)
{
	.reg .pred %p<2>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [n];
	ld.param.u32 %r2, [factor];
	ld.param.u32 %r3, [seed];
	mov.u32 %r4, %ctaid.x;
	mov.u32 %r5, %ntid.x;
	mov.u32 %r6, %tid.x;
	mad.lo.s32 %r7, %r4, %r5, %r6;
	setp.ge.u32 %p1, %r7, %r1;
	@%p1 bra done;
	cvta.to.global.u64 %rd1, %rd1;
	mul.wide.u32 %rd2, %r7, 4;
	add.s64 %rd3, %rd1, %rd2;
	mad.lo.s32 %r8, %r7, %r2, %r3;
	st.global.u32 [%rd3], %r8;
done:
	ret;
}

.visible .entry mixed(.param .u64 p, .param .u32 a, .param .f64 b, .param .align 4 .b8 c[12], .param .f32 d)
{
	.reg .b32 %r<6>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	cvta.to.global.u64 %rd1, %rd1;
	ld.param.b32 %r1, [a];
	st.global.b32 [%rd1], %r1;
	ld.param.b64 %rd2, [b];
	st.global.b64 [%rd1+8], %rd2;
	ld.param.b32 %r2, [c];
	ld.param.b32 %r3, [c+4];
	ld.param.b32 %r4, [c+8];
	st.global.b32 [%rd1+16], %r2;
	st.global.b32 [%rd1+20], %r3;
	st.global.b32 [%rd1+24], %r4;
	ld.param.b32 %r5, [d];
	st.global.b32 [%rd1+28], %r5;
	ret;
}

.visible .entry last(.param .u64 p, .param .u32 offset)
{
	.reg .b32 %r<5>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	cvta.to.global.u64 %rd1, %rd1;
	ld.param.u32 %r1, [offset];
	mov.u32 %r2, dynamic;
	add.s32 %r3, %r2, %r1;
	st.shared.u32 [%r3], %r1;
	ld.shared.u32 %r4, [%r3];
	st.global.u32 [%rd1], %r4;
	ret;
}
`

// gpuFunction loads ptx and finds one of its kernels.
func gpuFunction(t testing.TB, d driver.Device, name string) driver.Function {
	t.Helper()
	m, err := d.Kernels().Load([]byte(ptx))
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, m.Close()) })
	f, err := m.Function(name)
	testkit.Must(t, err)
	return f
}

// fillKernel is the launch of fill.
func fillKernel(f driver.Function, p driver.Pointer, n, factor, seed uint32) driver.Kernel {
	return driver.Kernel{
		Name: "fill", Writes: []driver.Range{{Ptr: p, Size: 4 * int64(n)}},
		Code: f, Grid: [3]uint32{(n + 255) / 256}, Block: [3]uint32{256},
		Args: []driver.Arg{driver.PointerArg(p), driver.Uint32Arg(n), driver.Uint32Arg(factor), driver.Uint32Arg(seed)},
	}
}

// wantFilled fails the test unless word i at p is i*factor+seed.
func wantFilled(t testing.TB, s driver.Stream, p driver.Pointer, n, factor, seed uint32) {
	t.Helper()
	got := make([]byte, 4*n)
	testkit.Must(t, s.CopyOut(got, p))
	for i := range n {
		if v := binary.LittleEndian.Uint32(got[4*i:]); v != i*factor+seed {
			t.Fatalf("word %d is %d, want %d", i, v, i*factor+seed)
		}
	}
}

func TestGPULaunch(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := drivertest.NewStream(t, d)
	const n = 1_000_003
	p := drivertest.Alloc(t, d, 4*n+4)
	testkit.Must(t, s.Fill(p, 0x5a, 4*n+4))
	f := gpuFunction(t, d, "fill")
	if got, want := f.Limits().Params, []int{8, 4, 4, 4}; got != nil && !slices.Equal(got, want) {
		t.Errorf("Params %v, want %v", got, want)
	}
	if l := f.Limits(); l.Threads < 256 || l.Registers < 1 || l.DynamicShared < 48<<10 {
		t.Errorf("Limits %+v", l)
	}
	testkit.Must(t, d.Kernels().Launch(s, fillKernel(f, p, n, 2654435761, 17)))
	wantFilled(t, s, p, n, 2654435761, 17)
	edge := make([]byte, 4)
	testkit.Must(t, s.CopyOut(edge, p+4*n))
	if v := binary.LittleEndian.Uint32(edge); v != 0x5a5a5a5a {
		t.Errorf("the word after the last is %#x", v)
	}
}

func TestGPULaunchArguments(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := d.DefaultStream()
	p := drivertest.Alloc(t, d, 64)
	testkit.Must(t, s.Fill(p, 0, 64))
	three := []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}
	args := []driver.Arg{
		driver.PointerArg(p), driver.Int32Arg(-7), driver.Float64Arg(1.5), driver.StructArg(three), driver.Float32Arg(0.25),
	}
	testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{Name: "mixed", Code: gpuFunction(t, d, "mixed"), Args: args}))
	got := make([]byte, 32)
	testkit.Must(t, s.CopyOut(got, p))
	want := make([]byte, 32)
	binary.LittleEndian.PutUint32(want, 0xfffffff9)
	binary.LittleEndian.PutUint64(want[8:], 0x3ff8000000000000)
	copy(want[16:], three)
	binary.LittleEndian.PutUint32(want[28:], 0x3e800000)
	if !slices.Equal(got, want) {
		t.Errorf("the kernel saw %x, want %x", got, want)
	}
}

// TestGPULaunchShared asks for all the shared memory that the function's limits allow.
func TestGPULaunchShared(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := d.DefaultStream()
	p := drivertest.Alloc(t, d, 4)
	f := gpuFunction(t, d, "last")
	limit := f.Limits().DynamicShared
	for _, shared := range []int64{64, 48 << 10, limit} {
		testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{
			Name: "last", Code: f, Shared: shared,
			Args: []driver.Arg{driver.PointerArg(p), driver.Uint32Arg(uint32(shared - 4))},
		}))
		got := make([]byte, 4)
		testkit.Must(t, s.CopyOut(got, p))
		if v := binary.LittleEndian.Uint32(got); v != uint32(shared-4) {
			t.Errorf("%d bytes of shared memory: the last word came back as %d", shared, v)
		}
	}
	err := d.Kernels().Launch(s, driver.Kernel{
		Name: "last", Code: f, Shared: limit + 1, Args: []driver.Arg{driver.PointerArg(p), driver.Uint32Arg(0)},
	})
	if !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("one byte more than the limit of %d: %v, want ErrInvalid", limit, err)
	}
}

func TestGPULaunchRefused(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := d.DefaultStream()
	p := drivertest.Alloc(t, d, 4096)
	f := gpuFunction(t, d, "fill")
	for what, change := range map[string]func(*driver.Kernel){
		"too many threads":  func(k *driver.Kernel) { k.Block = [3]uint32{2048} },
		"a deep grid":       func(k *driver.Kernel) { k.Grid = [3]uint32{1, 1, 1 << 20} },
		"too few arguments": func(k *driver.Kernel) { k.Args = k.Args[:3] },
	} {
		k := fillKernel(f, p, 100, 1, 1)
		change(&k)
		if err := d.Kernels().Launch(s, k); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	_, err := d.Kernels().Load([]byte(strings.Replace(ptx, "mad.lo.s32", "mad.lo.nonsense", 1)))
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("Load of broken code: %v, want ErrInvalid with the compiler's words", err)
	}
	testkit.Must(t, d.Kernels().Launch(s, fillKernel(f, p, 1024, 3, 5))) // the device is none the worse
	wantFilled(t, s, p, 1024, 3, 5)
}

// TestGPULaunchesAtOnce launches one function from many goroutines: each launch has arguments of its own.
func TestGPULaunchesAtOnce(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	f := gpuFunction(t, d, "fill")
	const n = 10_000
	done := make(chan error)
	const goroutines = 8
	for g := range uint32(goroutines) {
		go func() {
			done <- func() error {
				s, err := d.NewStream(driver.StreamOptions{})
				if err != nil {
					return err
				}
				p, err := d.Alloc(4 * n)
				if err != nil {
					return err
				}
				got := make([]byte, 4*n)
				for i := range uint32(50) {
					if err := d.Kernels().Launch(s, fillKernel(f, p, n, g+1, i)); err != nil {
						return err
					}
					if err := s.CopyOut(got, p); err != nil {
						return err
					}
					if v := binary.LittleEndian.Uint32(got[4*(n-1):]); v != (n-1)*(g+1)+i {
						return errors.New("another launch's arguments")
					}
				}
				return errors.Join(s.Close(), d.Free(p))
			}()
		}()
	}
	for range goroutines {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkGPULaunch(b *testing.B) {
	d := drivertest.OpenDevice(b, "cuda:0")
	s := drivertest.NewStream(b, d)
	p := drivertest.Alloc(b, d, 4096)
	k, kernels := fillKernel(gpuFunction(b, d, "fill"), p, 1, 1, 1), d.Kernels()
	b.ReportAllocs()
	for b.Loop() {
		testkit.Must(b, kernels.Launch(s, k))
	}
}
