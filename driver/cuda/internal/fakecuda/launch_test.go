//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"strings"
	"testing"
	"unsafe"
)

const testPTX = `
// .entry commented(.param .u64 p) { }
.version 8.0
.target sm_90
.address_size 64

.visible .entry add(
	.param .u64 .ptr .global .align 16 add_p,
	.param .u32 add_n,
	.param .align 16 .b8 add_s[20], /* a structure */
	.param .f32 add_f
)
.maxntid 128, 2, 1
{
	.shared .align 4 .b8 tile[1024];
	.shared .f32 one;
	{ ret; }
}

.entry nothing
{
	ret;
}
`

// load loads a text and returns the module, the result and what the error log says.
func (r *rig) load(text string) (uint64, Result, string) {
	image := append([]byte(text), 0)
	m, log := new(uint64), make([]byte, 200)
	values := &[2]unsafe.Pointer{unsafe.Pointer(&log[0])}
	*(*uint64)(unsafe.Pointer(&values[1])) = 200
	res := r.call("cuModuleLoadDataEx", m, image, 2, &[2]int32{jitErrorLog, jitErrorLogSize}, values)
	size := *(*uint64)(unsafe.Pointer(&values[1]))
	if res == Success {
		return *m, res, ""
	}
	return 0, res, string(log[:size])
}

func TestModules(t *testing.T) {
	var runs []Launch
	r := newRig(t, Options{Kernels: map[string]Kernel{"add": func(l Launch) Result {
		runs = append(runs, l)
		return Success
	}}})
	r.current(0)
	for text, want := range map[string]string{
		"hello": "Missing .version",
		".version 8.0\n.target sm_999\n.address_size 64\n": "sm_999",
		strings.TrimSuffix(testPTX, "}\n"):                 "near 'nothing'",
	} {
		if _, res, log := r.load(text); res != InvalidPTX || !strings.Contains(log, want) || log[len(log)-1] != 0 {
			t.Errorf("%.20q gave %d and says %q, want %q", text, res, log, want)
		}
	}
	_, res, _ := r.load("\x7fELF")
	r.want(res, NoBinaryForGPU)

	m, res, _ := r.load(testPTX)
	r.ok(res)
	r.want(r.call("cuModuleGetFunction", new(uint64), m, []byte("commented\x00")), NotFound)
	r.get("cuModuleGetFunction", m, []byte("nothing\x00"))
	f := r.get("cuModuleGetFunction", m, []byte("add\x00"))
	for attribute, want := range map[int]int32{funcMaxThreads: 256, funcShared: 1028} {
		got := new(int32)
		r.ok(r.call("cuFuncGetAttribute", got, attribute, f))
		if *got != want {
			t.Errorf("attribute %d is %d, want %d", attribute, *got, want)
		}
	}
	for i, want := range []param{{0, 8}, {8, 4}, {16, 20}, {36, 4}} {
		offset, size := new(uint64), new(uint64)
		r.ok(r.call("cuFuncGetParamInfo", f, i, offset, size))
		if (param{int64(*offset), int64(*size)}) != want {
			t.Errorf("parameter %d lies at %d, %d bytes, want %v", i, *offset, *size, want)
		}
	}
	r.want(r.call("cuFuncGetParamInfo", f, 4, new(uint64), new(uint64)), InvalidValue)
	count := new(uint64)
	r.ok(r.call("cuFuncGetParamCount", f, count))
	if *count != 4 {
		t.Errorf("%d parameters, want 4", *count)
	}

	launch := func(threads, shared int, params, extra any) Result {
		return r.call("cuLaunchKernel", f, 1, 1, 1, threads, 1, 1, shared, 0, params, extra)
	}
	buffer, size := new([40]byte), new(uint64)
	*size, buffer[9] = 40, 1
	extra := &[5]unsafe.Pointer{nil, unsafe.Pointer(buffer), nil, unsafe.Pointer(size), nil}
	*(*uint64)(unsafe.Pointer(&extra[0])), *(*uint64)(unsafe.Pointer(&extra[2])) = extraBuffer, extraSize
	r.ok(launch(256, 0, 0, extra))
	r.want(launch(1, 0, 0, 0), InvalidValue)
	r.want(launch(257, 0, 0, extra), LaunchOutOfResources)
	r.want(launch(1, 50_000, 0, extra), InvalidValue)
	r.ok(r.call("cuFuncSetAttribute", f, funcDynamic, 50_000))
	r.ok(launch(1, 50_000, 0, extra))
	*size = 39
	r.want(launch(1, 0, 0, extra), InvalidValue)
	r.ok(r.call("cuCtxSynchronize"))
	if len(runs) != 2 || runs[0].Params[1][1] != 1 || len(runs[0].Params[2]) != 20 {
		t.Errorf("%d launches ran: %v", len(runs), runs)
	}

	*size = 40
	r.ok(launch(1, 0, 0, extra))
	r.ok(r.call("cuModuleUnload", m)) // too early
	r.want(r.call("cuFuncGetAttribute", new(int32), 0, f), InvalidHandle)
	r.want(r.call("cuCtxSynchronize"), LaunchFailed)
}
