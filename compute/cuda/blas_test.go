//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"slices"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/ashlar-go/ashlar/driver"
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
		if err := l.tell(blasTold{step.stream, step.workspace, 10}); (err != nil) != (step.fail != 0) {
			t.Errorf("step %d: %v", i, err)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: told %v, want %v", i, got, step.want)
		}
	}
}
