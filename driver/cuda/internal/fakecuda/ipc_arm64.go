//go:build linux && arm64 && !nocuda

package fakecuda

// ipcOpenByValue takes the handle as the ABI passes it: the address of a copy.
func (c *call) ipcOpenByValue(to *uint64, h *ipcHandle, flags uint32) Result {
	return c.ipcOpenMemHandle(to, h, flags)
}

// ipcOpenEventByValue also takes the address of a copy.
func (c *call) ipcOpenEventByValue(to *uint64, h *ipcHandle) Result {
	return c.ipcOpenEventHandle(to, h)
}
