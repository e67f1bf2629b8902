//go:build !linux || !(amd64 || arm64) || nocuda

package nccl

// invoke is never called: without dlopen there is no function.
func invoke(uintptr, ...uintptr) uintptr { panic("nccl: a call without a library") }
