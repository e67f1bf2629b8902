//go:build linux && (amd64 || arm64) && !nocuda

package cu

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ebitengine/purego"
)

// withFunctions is a Lib of just these functions.
func withFunctions(functions map[string]any) *Lib {
	addresses := map[string]uintptr{}
	for name, f := range functions {
		addresses[name] = purego.NewCallback(f)
	}
	return New(func(symbol string) (uintptr, error) {
		if a := addresses[symbol]; a != 0 {
			return a, nil
		}
		return 0, errors.New("not there")
	})
}

func TestLayouts(t *testing.T) {
	if n := unsafe.Sizeof(MemProp{}); n != 32 {
		t.Errorf("CUmemAllocationProp has 32 bytes, MemProp %d", n)
	}
	if n := unsafe.Sizeof(MemAccess{}); n != 12 {
		t.Errorf("CUmemAccessDesc has 12 bytes, MemAccess %d", n)
	}
	if n := unsafe.Sizeof(IPCHandle{}); n != 64 {
		t.Errorf("CUipcMemHandle has 64 bytes, IPCHandle %d", n)
	}
	for s, all := range names {
		if len(all) == 0 {
			t.Errorf("symbol %d has no name", s)
		}
	}
}

func TestAMissingSymbolIsAResult(t *testing.T) {
	l := withFunctions(nil)
	_, r := l.MemAlloc(1)
	if r.Missing() != "cuMemAlloc_v2" || !errors.Is(r.Code(), driver.ErrUnsupported) {
		t.Errorf("MemAlloc without a library: %v, missing %q", r.Code(), r.Missing())
	}
	if text := l.Describe(r); !strings.Contains(text, "cuMemAlloc_v2") {
		t.Errorf("%q does not name the function", text)
	}
	if n := len(l.Missing()); n != int(symbolCount)-2 {
		t.Errorf("%d symbols missing, want all %d but the two that are dispensable", n, symbolCount)
	}
}

// TestTheModeOfCaptures is relaxed for a call that is unsafe in captures, and comes back.
func TestTheModeOfCaptures(t *testing.T) {
	for _, x := range []struct {
		name  string
		mode  CaptureMode // of the thread
		fails int         // the exchange that fails, from 1
		calls int
		in    CaptureMode // of the thread during the call
	}{
		{"global", CaptureGlobal, 0, 2, CaptureRelaxed},
		{"thread-local", CaptureThreadLocal, 0, 2, CaptureRelaxed},
		{"relaxed", CaptureRelaxed, 0, 2, CaptureRelaxed},
		{"no exchange", CaptureThreadLocal, 1, 1, CaptureThreadLocal},
		{"no exchange back at first", CaptureThreadLocal, 2, 3, CaptureRelaxed},
	} {
		mode, calls, in := x.mode, 0, CaptureMode(-1)
		l := withFunctions(map[string]any{
			"cuThreadExchangeStreamCaptureMode": func(m *CaptureMode) int32 {
				if calls++; calls == x.fails {
					return int32(InvalidValue)
				}
				*m, mode = mode, *m
				return 0
			},
			"cuEventQuery":  func(uintptr) int32 { in = mode; return int32(NotReady) },
			"cuEventRecord": func(e, s uintptr) int32 { return 0 },
		})
		if r := l.EventQuery(1); r != NotReady || calls != x.calls || in != x.in || mode != x.mode {
			t.Errorf("%s: result %d, %d exchanges, mode %d in the call and %d after it", x.name, r, calls, in, mode)
		}
		before := calls
		if r := l.EventRecord(1, 2); r != Success || calls != before {
			t.Errorf("%s: a call that is safe exchanged the mode", x.name)
		}
	}
	l := withFunctions(map[string]any{"cuEventQuery": func(uintptr) int32 { return int32(NotReady) }})
	if r := l.EventQuery(1); r != NotReady {
		t.Errorf("without the function: result %d", r)
	}
}

func TestAnOlderNameServes(t *testing.T) {
	l := withFunctions(map[string]any{
		"cuEventElapsedTime": func(out *float32, from, to uintptr) int32 { *out = float32(to - from); return 0 },
	})
	if ms, r := l.EventElapsed(3, 8); ms != 5 || r != Success {
		t.Errorf("got %v, %v", ms, r)
	}
}

// TestResults checks that results are stored in the cells that are returned, for every shape of call.
func TestResults(t *testing.T) {
	l := withFunctions(map[string]any{
		"cuMemGetInfo_v2":             func(free, total *uint64) int32 { *free, *total = 7, 9; return 0 },
		"cuStreamGetPriority":         func(s uintptr, p *int32) int32 { *p = -int32(s); return 0 },
		"cuCtxGetStreamPriorityRange": func(a, b *int32) int32 { *a, *b = 0, -5; return 0 },
		"cuMemCreate": func(h *uint64, size uintptr, p *MemProp, flags uintptr) int32 {
			if *p != DeviceMemory(3, HandleFD) {
				return 1
			}
			*h = uint64(size) + 1
			return 0
		},
		"cuPointerGetAttribute": func(out *uint64, which int32, p uintptr) int32 {
			*out = uint64(which) + uint64(p)
			return 0
		},
		"cuLaunchKernel": func(f, gx, gy, gz, bx, by, bz, shared, s uintptr, params *[2]*int64, extra uintptr) int32 {
			if extra != 0 {
				return 1
			}
			return int32(f + 2*gx + 3*gy + 4*gz + 5*bx + 6*by + 7*bz + 8*shared + 9*s + uintptr(*params[0]) + uintptr(*params[1]))
		},
	})
	if f, total, r := l.MemGetInfo(); f != 7 || total != 9 || r != 0 {
		t.Errorf("MemGetInfo: %d, %d, %v", f, total, r)
	}
	if p, r := l.StreamPriority(4); p != -4 || r != 0 {
		t.Errorf("StreamPriority: %d, %v", p, r)
	}
	if last, first, r := l.StreamPriorityRange(); last != 0 || first != -5 || r != 0 {
		t.Errorf("StreamPriorityRange: %d, %d, %v", last, first, r)
	}
	if h, r := l.MemCreate(41, DeviceMemory(3, HandleFD)); h != 42 || r != 0 {
		t.Errorf("MemCreate: %d, %v", h, r)
	}
	if v, r := l.PointerGetAttribute(PointerRangeSize, 100); r != 0 || v != 112 {
		t.Errorf("PointerGetAttribute: %v, %v", v, r)
	}
	a, b := new(int64), new(int64)
	*a, *b = 1000, 2000
	params := []unsafe.Pointer{unsafe.Pointer(a), unsafe.Pointer(b)}
	if r := l.LaunchKernel(1, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 1, 1, unsafe.Pointer(&params[0])); r != 45+3000 {
		t.Errorf("LaunchKernel: %d, want 3045", r)
	}
}

// TestCallsWithIntegersAllocateNothing: the calls of a warm stream.
func TestCallsWithIntegersAllocateNothing(t *testing.T) {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	abs, err := purego.Dlsym(libc, "abs")
	if err != nil {
		t.Fatal(err)
	}
	l := New(func(string) (uintptr, error) { return abs, nil })
	for name, call := range map[string]func(){
		"CtxSetCurrent":   func() { l.CtxSetCurrent(0) },
		"MemAlloc":        func() { l.MemAlloc(1) },
		"MemcpyDtoDAsync": func() { l.MemcpyDtoDAsync(1, 2, 3, 4) },
		"EventQuery":      func() { l.EventQuery(1) },
		"LaunchKernel":    func() { l.LaunchKernel(1, [3]uint32{}, [3]uint32{}, 0, 0, nil) },
	} {
		if n := testing.AllocsPerRun(1000, call); n >= 1 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestCodes(t *testing.T) {
	for r, want := range map[Result]error{
		OutOfMemory: driver.ErrNoMemory, NotSupported: driver.ErrUnsupported, NoDevice: driver.ErrAbsent,
		InvalidDevice: driver.ErrAbsent, SystemNotReady: driver.ErrAbsent, SystemDriverMismatch: driver.ErrAbsent,
		InvalidValue: driver.ErrInvalid, InvalidContext: driver.ErrInvalid, InvalidHandle: driver.ErrInvalid,
		NotReady: driver.ErrNotReady, CaptureUnsupported: driver.ErrCapturing, CapturedEvent: driver.ErrCapturing,
		IllegalAddress: driver.ErrLost, LaunchFailed: driver.ErrLost, ECCUncorrectable: driver.ErrLost,
		Deinitialized: driver.ErrClosed, PeerAccessUnsupported: driver.ErrUnsupported,
	} {
		if got := r.Code(); !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", (*Lib)(nil).Describe(r), got, want)
		}
	}
	if Success.Code() != nil {
		t.Error("Success is an error")
	}
	if e := ResultError(0); !errors.As(Unknown.Code(), &e) || !strings.Contains(e.Error(), "999") {
		t.Errorf("CUDA_ERROR_UNKNOWN: %v", Unknown.Code())
	}
}

func TestDescribeUsesTheLibrarysWords(t *testing.T) {
	name, meaning := []byte("CUDA_ERROR_NEW\x00"), []byte("something new\x00")
	l := withFunctions(map[string]any{
		"cuGetErrorName":   func(r uintptr, out *uintptr) int32 { *out = uintptr(unsafe.Pointer(&name[0])); return 0 },
		"cuGetErrorString": func(r uintptr, out *uintptr) int32 { *out = uintptr(unsafe.Pointer(&meaning[0])); return 0 },
	})
	if got := l.Describe(850); got != "CUDA_ERROR_NEW (850): something new" {
		t.Errorf("got %q", got)
	}
	if got := (*Lib)(nil).Describe(850); got != "CUDA error 850" {
		t.Errorf("got %q", got)
	}
}

func TestIPCGetMemHandle(t *testing.T) {
	l := withFunctions(map[string]any{"cuIpcGetMemHandle": func(h *IPCHandle, p uintptr) int32 { h[7] = uint64(p); return 0 }})
	if h, r := l.IPCGetMemHandle(99); h != (IPCHandle{7: 99}) || r != 0 {
		t.Errorf("got %v, %v", h, r)
	}
}
