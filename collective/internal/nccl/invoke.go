//go:build linux && (amd64 || arm64) && !nocuda

package nccl

import "github.com/ebitengine/purego"

// invoke calls a C function of integers and addresses.
func invoke(function uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(function, args...)
	return r
}
