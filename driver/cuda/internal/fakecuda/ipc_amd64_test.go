//go:build linux && amd64 && !nocuda

package fakecuda

import "encoding/binary"

// byValue is the arguments of cuIpcOpenMemHandle as they lie in registers and on the stack.
func byValue(p *uint64, h *ipcHandle, flags int) []any {
	args := []any{p, flags, 0, 0, 0, 0}
	for i := range 8 {
		args = append(args, binary.LittleEndian.Uint64(h[8*i:]))
	}
	return args
}
