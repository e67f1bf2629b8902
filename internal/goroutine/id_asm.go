//go:build amd64 || arm64

package goroutine

// id returns the address of the runtime's record of the goroutine that runs.
func id() uintptr
