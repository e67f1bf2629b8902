//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// The machine reads only what an entry declares; what it does is said in Go.
const testPTX = `
.version 7.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 p, .param .u32 a, .param .f64 b, .param .align 4 .b8 c[12], .param .f32 d) { ret; }
.visible .entry nothing() { ret; }
.visible .entry narrow(.param .u64 p) .maxntid 64 { .shared .align 4 .b8 fixed[1024]; ret; }
`

// storing writes its parameters but the first one after the other to where the first points.
func storing(l fakecuda.Launch) fakecuda.Result {
	out := slices.Concat(l.Params[1:]...)
	b, r := l.Memory(binary.LittleEndian.Uint64(l.Params[0]), int64(len(out)), true)
	copy(b, out)
	return r
}

func doNothing(fakecuda.Launch) fakecuda.Result { return fakecuda.Success }

func kernelRig(t testing.TB, o fakecuda.Options) *rig {
	o.Kernels = map[string]fakecuda.Kernel{"store": storing, "nothing": doNothing, "narrow": doNothing}
	return newRig(t, o)
}

func (r *rig) load() driver.Module {
	r.Helper()
	m, err := r.d.Kernels().Load([]byte(testPTX))
	r.ok(err)
	return m
}

func (r *rig) function(name string) driver.Function {
	r.Helper()
	f, err := r.load().Function(name)
	r.ok(err)
	return f
}

func TestLaunch(t *testing.T) {
	r := kernelRig(t, fakecuda.Options{Harsh: true})
	s, p := r.stream(), r.alloc(64)
	m := r.load()
	f, err := m.Function("store")
	r.ok(err)
	if again, err := m.Function("store"); again != f || err != nil {
		t.Errorf("the same name gave %v, %v", again, err)
	}
	if got, want := f.Limits().Params, []int{8, 4, 8, 12, 4}; !slices.Equal(got, want) {
		t.Errorf("Params %v, want %v", got, want)
	}
	three := []byte("twelve bytes")
	r.ok(r.d.Kernels().Launch(s, driver.Kernel{
		Name: "any", Code: f, Grid: [3]uint32{7}, Block: [3]uint32{32, 2},
		Args: []driver.Arg{
			driver.PointerArg(p), driver.Uint32Arg(0x01020304), driver.Float64Arg(1), driver.StructArg(three),
			driver.Float32Arg(2),
		},
	}))
	clear(three) // libcuda has read it
	want := []byte{4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}
	want = append(append(want, "twelve bytes"...), 0, 0, 0, 0x40)
	r.holds(s, p, want)
	calls := r.m.Calls("cuLaunchKernel")
	none, err := m.Function("nothing")
	r.ok(err)
	if p := none.Limits().Params; p == nil || len(p) != 0 {
		t.Errorf("Params of a function without any: %v", p)
	}
	r.ok(r.d.Kernels().Launch(s, driver.Kernel{Code: none}))
	r.ok(r.d.Kernels().Launch(s, driver.Kernel{Name: "no code, no function: work that does nothing"}))
	if n := r.m.Calls("cuLaunchKernel") - calls; n != 1 {
		t.Errorf("%d launches", n)
	}
	for _, l := range r.m.Log() {
		if l.Symbol == "cuLaunchKernel" && (l.Args[1] == 0 || l.Args[6] == 0) {
			t.Errorf("a grid or block of zero: %v", l.Args)
		}
	}
	syncOf(t, s)
	r.ok(m.Close())
	r.ok(m.Close())
	r.wantErr("Launch after the module's Close", r.d.Kernels().Launch(s, driver.Kernel{Code: none}), driver.ErrClosed)
	_, err = m.Function("nothing")
	r.wantErr("Function after Close", err, driver.ErrClosed)
}

func TestLaunchRefused(t *testing.T) {
	r := kernelRig(t, fakecuda.Options{})
	s, p := r.stream(), r.alloc(64)
	store, narrow := r.function("store"), r.function("narrow")
	foreign := (&rig{t, r.m, openOn(t, r.m, "1")}).function("nothing")
	args := []driver.Arg{
		driver.PointerArg(p), driver.Uint32Arg(1), driver.Float64Arg(1), driver.StructArg(make([]byte, 12)), driver.Float32Arg(2),
	}
	one := []driver.Arg{driver.PointerArg(p)}
	limits := narrow.Limits()
	if limits.Threads != 64 || limits.StaticShared != 1024 || limits.DynamicShared != r.d.info.SharedMemory-1024 {
		t.Errorf("limits %+v, of a device with %d bytes of shared memory", limits, r.d.info.SharedMemory)
	}
	for _, c := range []struct {
		k    driver.Kernel
		says string
	}{
		{driver.Kernel{Code: store, Args: args[:4]}, "4 arguments"},
		{driver.Kernel{Code: store, Args: append(slices.Clone(args), args[0])}, "6 arguments"},
		{driver.Kernel{Code: store, Args: []driver.Arg{args[1], args[0], args[2], args[3], args[4]}}, "argument 0 of 4 bytes"},
		{driver.Kernel{Code: store, Args: args, Block: [3]uint32{1, 1, 65}}, "65 threads along z"},
		{driver.Kernel{Code: store, Args: args, Block: [3]uint32{64, 32}}, "2048 threads"},
		{driver.Kernel{Code: store, Args: args, Grid: [3]uint32{1 << 31}}, "along x"},
		{driver.Kernel{Code: store, Args: args, Grid: [3]uint32{1, 65536}}, "65536 blocks along y"},
		{driver.Kernel{Code: store, Args: args, Block: [3]uint32{1 << 31, 1 << 31, 4}}, "threads along x"},
		{driver.Kernel{Code: store, Args: args, Shared: -1}, "-1 bytes"},
		{driver.Kernel{Code: store, Args: args, Shared: 1 << 40}, "shared"},
		{driver.Kernel{Code: narrow, Args: one, Block: [3]uint32{65}}, "at most 64"},
		{driver.Kernel{Code: narrow, Args: one, Shared: limits.DynamicShared + 1}, "shared"},
		{driver.Kernel{Code: foreign}, "not of a module of this device"},
	} {
		r.wantErr(c.says, r.d.Kernels().Launch(s, c.k), driver.ErrInvalid, c.says)
	}
	if n := r.m.Calls("cuLaunchKernel"); n != 0 {
		t.Errorf("%d launches reached libcuda", n)
	}
	err := r.d.Kernels().Launch(s, driver.Kernel{Name: "go", Func: func(driver.Memory) error { return nil }})
	r.wantErr("a Go function", err, driver.ErrUnsupported, "Go function")
}

// TestLaunchOptsInToSharedMemory once for each size that is larger than before.
func TestLaunchOptsInToSharedMemory(t *testing.T) {
	r := kernelRig(t, fakecuda.Options{})
	s, f, p := r.stream(), r.function("narrow"), r.alloc(64)
	for i, shared := range []int64{0, 40 << 10, 64 << 10, 64 << 10, 50 << 10, f.Limits().DynamicShared} {
		r.ok(r.d.Kernels().Launch(s, driver.Kernel{Code: f, Shared: shared, Args: []driver.Arg{driver.PointerArg(p)}}))
		if got, want := r.m.Calls("cuFuncSetAttribute"), []int{0, 0, 1, 1, 1, 2}[i]; got != want {
			t.Errorf("%d bytes: told libcuda %d times, want %d", shared, got, want)
		}
	}
	r.m.Fail("cuFuncSetAttribute", 1, fakecuda.InvalidValue)
	g := r.function("narrow")
	big := driver.Kernel{Code: g, Shared: 64 << 10, Args: []driver.Arg{driver.PointerArg(p)}}
	r.wantErr("opting in fails", r.d.Kernels().Launch(s, big), driver.ErrInvalid)
	r.ok(r.d.Kernels().Launch(s, big)) // it is tried again
}

func TestLoad(t *testing.T) {
	r := kernelRig(t, fakecuda.Options{})
	k := r.d.Kernels()
	_, err := k.Load([]byte(strings.Replace(testPTX, ".version 7.0", "", 1)))
	r.wantErr("text that is no PTX", err, driver.ErrInvalid, "Missing .version")
	_, err = k.Load(nil)
	r.wantErr("no code", err, driver.ErrInvalid)
	_, err = k.Load([]byte("\x7fELF\x02"))
	r.wantErr("code for another device", err, driver.ErrUnsupported)
	m, err := k.Load([]byte(testPTX + "\x00"))
	r.ok(err)
	for _, name := range []string{"missing", "", "nothing\x00"} {
		_, err = m.Function(name)
		r.wantErr(fmt.Sprintf("function %q", name), err, driver.ErrInvalid)
	}
	code := []byte(testPTX)
	_, err = k.Load(code[:len(code):cap(code)])
	r.ok(err)
	if !bytes.Equal(code, []byte(testPTX)) {
		t.Error("Load changed its argument")
	}
	r.ok(r.d.Close()) // unloads all of them
	r.ok(m.Close())
}

// TestWithoutParamInfo: drivers before CUDA 12.4 do not tell the parameters.
func TestWithoutParamInfo(t *testing.T) {
	r := kernelRig(t, fakecuda.Options{Missing: []string{"cuFuncGetParamInfo"}})
	s, p, f := r.stream(), r.alloc(64), r.function("narrow")
	if f.Limits().Params != nil {
		t.Errorf("Params %v", f.Limits().Params)
	}
	r.ok(r.d.Kernels().Launch(s, driver.Kernel{Code: f, Args: []driver.Arg{driver.PointerArg(p)}}))
}

// TestParametersAreNotAskedForInVain: a tool that watches libcuda's results reports each that fails. Drivers before CUDA
// 13.2 do not tell how many parameters there are, so there one call must.
func TestParametersAreNotAskedForInVain(t *testing.T) {
	for _, missing := range [][]string{nil, {"cuFuncGetParamCount"}} {
		r := kernelRig(t, fakecuda.Options{Missing: missing})
		if got := r.function("narrow").Limits().Params; len(got) == 0 {
			t.Errorf("without %v no parameters are known", missing)
		}
		failed := 0
		for _, c := range r.m.Log() {
			if c.Result != fakecuda.Success {
				failed++
			}
		}
		if failed != len(missing) {
			t.Errorf("without %v %d calls failed, want %d", missing, failed, len(missing))
		}
		r.ok(r.d.Close())
		r.m.Close()
	}
}

func TestFailedCallsOfModules(t *testing.T) {
	for _, symbol := range []string{
		"cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncGetParamCount", "cuFuncGetParamInfo",
		"cuLaunchKernel", "cuModuleUnload",
	} {
		t.Run(symbol, func(t *testing.T) {
			r := kernelRig(t, fakecuda.Options{})
			s, p := r.stream(), r.alloc(64)
			all := func() error {
				m, err := r.d.Kernels().Load([]byte(testPTX))
				if err != nil {
					return err
				}
				f, err := m.Function("narrow")
				if err != nil {
					return err
				}
				err = r.d.Kernels().Launch(s, driver.Kernel{Code: f, Args: []driver.Arg{driver.PointerArg(p)}})
				syncOf(t, s)
				return errors.Join(err, m.Close())
			}
			r.m.Fail(symbol, 1, fakecuda.OutOfMemory)
			r.wantErr("with "+symbol+" failing", all(), driver.ErrNoMemory)
			r.ok(all())
		})
	}
}

// TestLaunchesAtOnce: each has arguments of its own.
func TestLaunchesAtOnce(t *testing.T) {
	r := kernelRig(t, fakecuda.Options{Pace: fakecuda.Background})
	f := r.function("store")
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for g := range errs {
		s, p := r.stream(), r.alloc(64)
		wg.Go(func() {
			for i := range uint32(50) {
				v := uint32(g)<<16 | i
				got := make([]byte, 28)
				errs[g] = errors.Join(errs[g], r.d.Kernels().Launch(s, driver.Kernel{Code: f, Args: []driver.Arg{
					driver.PointerArg(p), driver.Uint32Arg(v), driver.Float64Arg(0),
					driver.StructArg(bytes.Repeat([]byte{byte(g)}, 12)), driver.Uint32Arg(^v),
				}}), s.CopyOut(got, p))
				if binary.LittleEndian.Uint32(got) != v || binary.LittleEndian.Uint32(got[24:]) != ^v || got[12] != byte(g) {
					errs[g] = errors.Join(errs[g], errors.New("another launch's arguments"))
				}
			}
		})
	}
	wg.Wait()
	r.ok(errors.Join(errs...))
}
