//go:build linux && amd64 && !nocuda

package cu

import "testing"

// TestIPCOpenMemHandle: a structure by value reaches the function as C would pass it. On x86-64 it lies on the stack,
// which a callback sees as its seventh to fourteenth argument.
func TestIPCOpenMemHandle(t *testing.T) {
	l := withFunctions(map[string]any{
		"cuIpcOpenMemHandle_v2": func(p *uint64, flags uint32, _, _, _, _, h0, h1, h2, h3, h4, h5, h6, h7 uint64) int32 {
			if (IPCHandle{h0, h1, h2, h3, h4, h5, h6, h7}) != (IPCHandle{1, 2, 3, 4, 5, 6, 7, 8}) || flags != ipcLazyPeerAccess {
				return 1
			}
			*p = 42
			return 0
		},
	})
	if p, r := l.IPCOpenMemHandle(IPCHandle{1, 2, 3, 4, 5, 6, 7, 8}); p != 42 || r != Success {
		t.Errorf("got %d, %v", p, r)
	}
}

func TestIPCOpenEventHandle(t *testing.T) {
	l := withFunctions(map[string]any{
		"cuIpcOpenEventHandle": func(e *uint64, _, _, _, _, _, h0, h1, h2, h3, h4, h5, h6, h7 uint64) int32 {
			if (IPCHandle{h0, h1, h2, h3, h4, h5, h6, h7}) != (IPCHandle{1, 2, 3, 4, 5, 6, 7, 8}) {
				return 1
			}
			*e = 43
			return 0
		},
	})
	if e, r := l.IPCOpenEventHandle(IPCHandle{1, 2, 3, 4, 5, 6, 7, 8}); e != 43 || r != Success {
		t.Errorf("got %d, %v", e, r)
	}
}
