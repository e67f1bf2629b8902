//go:build linux && amd64 && !nocuda

package fakecuda

import "encoding/binary"

// ipcOpenByValue takes the handle as the x86-64 ABI passes it: a copy on the stack, after six arguments in registers.
// Four of those are unused.
func (c *call) ipcOpenByValue(to *uint64, flags uint32, _, _, _, _, h0, h1, h2, h3, h4, h5, h6, h7 uint64) Result {
	return c.ipcOpenMemHandle(to, handleOf(h0, h1, h2, h3, h4, h5, h6, h7), flags)
}

// ipcOpenEventByValue has one argument in a register.
func (c *call) ipcOpenEventByValue(to *uint64, _, _, _, _, _, h0, h1, h2, h3, h4, h5, h6, h7 uint64) Result {
	return c.ipcOpenEventHandle(to, handleOf(h0, h1, h2, h3, h4, h5, h6, h7))
}

func handleOf(words ...uint64) *ipcHandle {
	h := new(ipcHandle)
	for i, w := range words {
		binary.LittleEndian.PutUint64(h[8*i:], w)
	}
	return h
}
