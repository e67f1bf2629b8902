//go:build !linux || !(amd64 || arm64) || nocuda

package nccl

// invoke is never called, because without dlopen there are no functions.
func invoke(uintptr, ...uintptr) uintptr { panic("nccl: a call without a library") }
