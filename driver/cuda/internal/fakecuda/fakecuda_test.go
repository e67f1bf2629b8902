//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A rig is a machine whose functions a test calls as C does, from one thread.
type rig struct {
	*Machine
	t *testing.T
}

// newRig opens a machine for a test and initialises it.
func newRig(t *testing.T, opts Options) *rig {
	t.Helper()
	runtime.LockOSThread()
	m := New(opts)
	t.Cleanup(func() {
		m.Close()
		runtime.UnlockOSThread()
	})
	r := &rig{m, t}
	r.ok(r.call("cuInit", 0))
	return r
}

// call calls a function. Arguments are integers, or pointers to what then is on the heap, where it does not move.
func (r *rig) call(name string, args ...any) Result {
	a, err := r.Lookup(name)
	if err != nil {
		panic(err)
	}
	words := make([]uintptr, len(args))
	for i, x := range args {
		switch v := reflect.ValueOf(x); {
		case v.CanInt():
			words[i] = uintptr(v.Int())
		case v.CanUint():
			words[i] = uintptr(v.Uint())
		default:
			words[i] = v.Pointer()
		}
	}
	v, _, _ := purego.SyscallN(a, words...)
	runtime.KeepAlive(args)
	return Result(uint32(v))
}

// get calls a function whose first argument is where an 8-byte result goes.
func (r *rig) get(name string, args ...any) uint64 {
	r.t.Helper()
	v := new(uint64)
	r.ok(r.call(name, append([]any{v}, args...)...))
	return *v
}

func (r *rig) ok(got Result) { r.t.Helper(); r.want(got, Success) }

func (r *rig) want(got, want Result) {
	r.t.Helper()
	if got != want {
		r.t.Fatalf("got %d (%s), want %d (%s)", got, resultTexts[got][0], want, resultTexts[want][0])
	}
}

// current makes a device's primary context current and returns it.
func (r *rig) current(device int) uint64 {
	r.t.Helper()
	ctx := r.get("cuDevicePrimaryCtxRetain", device)
	r.ok(r.call("cuCtxSetCurrent", ctx))
	return ctx
}

func (r *rig) stream() uint64 {
	r.t.Helper()
	return r.get("cuStreamCreateWithPriority", streamNonBlocking, 0)
}

func (r *rig) alloc(size int) uint64 {
	r.t.Helper()
	return r.get("cuMemAlloc_v2", size)
}

func TestCallsNeedWhatTheyNeed(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := New(Options{Missing: []string{"cuMemMap"}})
	r := &rig{m, t}
	n := new(int32)
	r.want(r.call("cuDeviceGetCount", n), NotInitialized)
	r.ok(r.call("cuDriverGetVersion", n))
	if *n != 13000 {
		t.Errorf("version %d", *n)
	}
	r.ok(r.call("cuInit", 0))
	r.want(r.call("cuMemAlloc_v2", new(uint64), 4096), InvalidContext)
	r.current(0)
	r.alloc(4096)
	if _, err := m.Lookup("cuMemMap"); err == nil {
		t.Error("Lookup found a missing symbol")
	}
	if got := m.Calls("cuMemAlloc_v2"); got != 2 {
		t.Errorf("cuMemAlloc_v2 was called %d times, want 2", got)
	}
	r.ok(r.call("cuDevicePrimaryCtxRelease_v2", 0))
	r.want(r.call("cuCtxSynchronize"), ContextIsDestroyed)
	if leaks := m.Leaks(); len(leaks) != 1 {
		t.Errorf("leaks %q, want the memory that was left in the context", leaks)
	}
	m.Close()
	r.want(r.call("cuInit", 0), Deinitialized)
}

func TestContextBelongsToThread(t *testing.T) {
	r := newRig(t, Options{})
	ctx := r.current(0)
	done := make(chan Result)
	go func() {
		runtime.LockOSThread() // another thread than the test's, which is locked
		defer runtime.UnlockOSThread()
		done <- r.call("cuCtxSynchronize")
	}()
	r.want(<-done, InvalidContext)
	r.ok(r.call("cuCtxSynchronize"))
	if got := r.get("cuCtxGetCurrent"); got != ctx {
		t.Errorf("current context %#x, want %#x", got, ctx)
	}
	s := r.stream()
	r.current(1)
	r.want(r.call("cuStreamSynchronize", s), InvalidHandle)
}

func TestCopiesRunInStreamOrder(t *testing.T) {
	for _, pace := range []Pace{Late, AtOnce, Background} {
		r := newRig(t, Options{Pace: pace, Harsh: true})
		r.current(0)
		s, p := r.stream(), r.alloc(100_000)
		host := r.get("cuMemHostAlloc", 100_000, 0)
		src := bytes.Repeat([]byte{7}, 100_000)
		r.ok(r.call("cuMemsetD8Async", p, 1, 100_000, s))
		r.ok(r.call("cuMemcpyHtoDAsync_v2", p+10, &src[0], 1000, s))
		clear(src) // it was staged
		r.ok(r.call("cuMemcpyDtoHAsync_v2", host, p, 100_000, s))
		r.ok(r.call("cuStreamSynchronize", s))
		want := bytes.Repeat([]byte{1}, 100_000)
		copy(want[10:], bytes.Repeat([]byte{7}, 1000))
		if got := bytesAt(host, 100_000); !bytes.Equal(got, want) {
			t.Errorf("pace %d: wrong bytes", pace)
		}
		r.ok(r.call("cuMemFree_v2", p))
		r.ok(r.call("cuMemFreeHost", host))
		r.ok(r.call("cuStreamDestroy_v2", s))
		r.ok(r.call("cuDevicePrimaryCtxRelease_v2", 0))
		if leaks := r.Leaks(); leaks != nil {
			t.Errorf("leaks: %q", leaks)
		}
		r.Close()
	}
}

func TestPinnedSourceIsReadWhenTheCopyRuns(t *testing.T) {
	r := newRig(t, Options{})
	r.current(0)
	s, p := r.stream(), r.alloc(16)
	host := bytesAt(r.get("cuMemHostAlloc", 16, 0), 16)
	r.ok(r.call("cuMemcpyHtoDAsync_v2", p, &host[0], 16, s))
	copy(host, "changed too soon")
	r.ok(r.call("cuStreamSynchronize", s))
	if got := string(r.Bytes(p, 16)); got != "changed too soon" {
		t.Errorf("device has %q", got)
	}
}

func TestHeldStreamsAndEvents(t *testing.T) {
	r := newRig(t, Options{})
	r.current(0)
	a, b, p := r.stream(), r.stream(), r.alloc(16)
	e := r.get("cuEventCreate", eventDisableTiming)
	r.ok(r.call("cuEventQuery", e)) // never recorded
	r.Hold(a)
	r.ok(r.call("cuMemsetD8Async", p, 1, 16, a))
	r.ok(r.call("cuEventRecord", e, a))
	r.ok(r.call("cuStreamWaitEvent", b, e, 0))
	r.ok(r.call("cuEventRecord", e, b)) // the wait is for the earlier record
	r.ok(r.call("cuMemsetD8Async", p, 2, 16, b))
	for range 3 {
		r.want(r.call("cuEventQuery", e), NotReady)
	}
	r.want(r.call("cuEventElapsedTime", new(float32), e, e), InvalidHandle)
	r.Step(a)
	r.want(r.call("cuEventQuery", e), NotReady)
	r.Release(a)
	r.ok(r.call("cuStreamSynchronize", b))
	r.ok(r.call("cuEventQuery", e))
	if got := r.Bytes(p, 1)[0]; got != 2 {
		t.Errorf("device has %d, want 2", got)
	}
}

func TestDefaultStreamWaitsForBlockingStreams(t *testing.T) {
	r := newRig(t, Options{})
	r.current(0)
	p := r.alloc(16)
	blocking, independent := r.get("cuStreamCreateWithPriority", 0, 0), r.stream()
	r.Hold(blocking)
	r.Hold(independent)
	r.ok(r.call("cuMemsetD8Async", p, 1, 8, independent))
	r.ok(r.call("cuMemsetD8Async", p, 2, 8, 0))
	r.ok(r.call("cuStreamSynchronize", 0)) // not held up by the independent one
	r.ok(r.call("cuMemsetD8Async", p, 3, 8, blocking))
	r.ok(r.call("cuMemsetD8Async", p, 4, 8, 0))
	e := r.get("cuEventCreate", eventDisableTiming)
	r.ok(r.call("cuEventRecord", e, 0))
	r.want(r.call("cuEventQuery", e), NotReady)
	if got := r.Bytes(p, 1)[0]; got != 2 {
		t.Errorf("device has %d, want 2", got)
	}
	r.Release(blocking)
	r.ok(r.call("cuStreamSynchronize", 0))
	if got := r.Bytes(p, 1)[0]; got != 4 {
		t.Errorf("device has %d, want 4", got)
	}
}

func TestLaunchTakesElevenArguments(t *testing.T) {
	ptx := []byte(".version 7.0\n.target sm_70\n.address_size 64\n" +
		".visible .entry fill(.param .u64 p, .param .u32 value, .param .align 8 .b8 pair[16])\n{ ret; }\n\x00")
	var got Launch
	r := newRig(t, Options{Kernels: map[string]Kernel{"fill": func(l Launch) Result {
		got = l
		return Success
	}}})
	r.current(0)
	module := r.get("cuModuleLoadDataEx", &ptx[0], 0, 0, 0)
	name := []byte("fill\x00")
	f := r.get("cuModuleGetFunction", module, &name[0])
	p, value, pair := uint64(0x1234), uint32(9), [2]uint64{5, 6}
	params := &[3]unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&value), unsafe.Pointer(&pair)}
	r.ok(r.call("cuLaunchKernel", f, 2, 3, 4, 5, 6, 7, 512, 0, params, 0))
	r.ok(r.call("cuCtxSynchronize"))
	if got.Grid != [3]uint32{2, 3, 4} || got.Block != [3]uint32{5, 6, 7} || got.Shared != 512 {
		t.Errorf("launched as %+v", got)
	}
	want := [][]byte{{0x34, 0x12, 0, 0, 0, 0, 0, 0}, {9, 0, 0, 0}, {5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0}}
	for i, w := range want {
		if !bytes.Equal(got.Params[i], w) {
			t.Errorf("parameter %d is %v, want %v", i, got.Params[i], w)
		}
	}
	r.want(r.call("cuLaunchKernel", f, 0, 1, 1, 1, 1, 1, 0, 0, params, 0), InvalidValue)
	r.want(r.call("cuLaunchKernel", f, 1, 1, 1, 1025, 1, 1, 0, 0, params, 0), InvalidValue)
}
