//go:build !amd64 && !arm64

package goroutine

func id() uintptr { return parsed() }
