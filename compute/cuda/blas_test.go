//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ebitengine/purego"
)

// The library is told of a stream and a workspace when they change, of the workspace also with every other stream, which
// makes it forget its own, and of both again after a failure.
func TestHandleIsToldWhatChanged(t *testing.T) {
	type told struct{ stream, workspace, size uintptr }
	var got []told
	var fail uintptr
	l := &blas{handle: 7}
	l.functions.setStream = purego.NewCallback(func(handle, stream uintptr) uintptr {
		if handle != 7 {
			t.Errorf("handle %d", handle)
		}
		got = append(got, told{stream: stream})
		return 0
	})
	l.functions.setWorkspace = purego.NewCallback(func(_, workspace, size uintptr) uintptr {
		got = append(got, told{workspace: workspace, size: size})
		return fail
	})
	for i, step := range []struct {
		stream    uintptr
		workspace driver.Pointer
		fail      uintptr
		want      []told
	}{
		{0, 100, 0, []told{{stream: 0}, {workspace: 100, size: 10}}},
		{0, 100, 0, nil},
		{0, 200, 0, []told{{workspace: 200, size: 10}}},
		{5, 200, 0, []told{{stream: 5}, {workspace: 200, size: 10}}},
		{5, 300, 7, []told{{workspace: 300, size: 10}}},
		{5, 300, 0, []told{{stream: 5}, {workspace: 300, size: 10}}},
		{5, 300, 0, nil},
	} {
		got, fail = nil, step.fail
		if err := l.configure(handleSettings{step.stream, step.workspace, 10}); (err != nil) != (step.fail != 0) {
			t.Errorf("step %d: %v", i, err)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: told %v, want %v", i, got, step.want)
		}
	}
}

// streamed has a default stream, and calling calls what is launched at once, with the number of the stream as its handle.
type (
	streamed struct{ driver.Device }
	calling  struct{ driver.Kernels }
)

func (streamed) DefaultStream() driver.Stream { return numbered{} }

func (calling) Launch(s driver.Stream, k driver.Kernel) error {
	return k.Call(uintptr(s.ID()) + 100)
}

type numbered struct {
	driver.Stream
	id driver.StreamID
}

func (n numbered) ID() driver.StreamID { return n.id }

// The handle for callers is made once, on the default stream, is not the one that products are made with, and goes with the backend.
func TestDefect20_CallersHaveAHandleOfTheirOwn(t *testing.T) {
	var made uintptr
	var got []string
	note := func(call string, handle, argument uintptr) uintptr {
		got = append(got, fmt.Sprint(call, " ", handle, " ", argument))
		return 0
	}
	b := &Backend{dev: streamed{}, kernels: calling{}}
	b.blas.once.Do(func() {}) // it is open
	b.blas.name = "libcublas.so"
	b.blas.functions = blasFunctions{
		create: purego.NewCallback(func(to *uintptr) uintptr {
			made++
			*to = made
			return 0
		}),
		destroy:      purego.NewCallback(func(handle uintptr) uintptr { return note("destroy", handle, 0) }),
		setStream:    purego.NewCallback(func(handle, stream uintptr) uintptr { return note("stream", handle, stream) }),
		setWorkspace: purego.NewCallback(func(handle, workspace, size uintptr) uintptr { return note("workspace", handle, workspace) }),
		setMathMode:  purego.NewCallback(func(handle, mode uintptr) uintptr { return note("mode", handle, mode) }),
		gemm:         purego.NewCallback(func(handle uintptr) uintptr { return note("gemm", handle, 0) }),
	}
	for range 2 {
		if handle, err := b.BLASHandle(); err != nil || handle != 1 {
			t.Errorf("handle %d, %v; want 1", handle, err)
		}
	}
	if err := b.blas.gemm(107, &gemmArguments{d: dtype.Float32, workspace: 5, workspaceSize: 6}); err != nil {
		t.Error(err)
	}
	if err := b.blas.close(b); err != nil {
		t.Error(err)
	}
	if err := b.blas.close(b); err != nil {
		t.Error(err)
	}
	want := []string{"stream 1 100", "mode 2 16", "stream 2 107", "workspace 2 5", "gemm 2 0", "destroy 2 0", "destroy 1 0"}
	if !slices.Equal(got, want) {
		t.Errorf("cuBLAS was called: %q, want %q", got, want)
	}
	none := &Backend{dev: streamed{}, kernels: calling{}, blas: blas{options: Options{NoLibrary: true}}}
	if _, err := none.BLASHandle(); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("without cuBLAS: %v", err)
	}
}
