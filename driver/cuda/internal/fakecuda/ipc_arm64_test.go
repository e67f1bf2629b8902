//go:build linux && arm64 && !nocuda

package fakecuda

// byValue is the arguments of cuIpcOpenMemHandle as they lie in registers.
func byValue(p *uint64, h *ipcHandle, flags int) []any {
	heap := new(ipcHandle)
	*heap = *h
	return []any{p, heap, flags}
}
