//go:build !linux || !(amd64 || arm64) || nocuda

package dlpack

// canCall reports whether this build can call C deleters.
const canCall = false

// deleter returns NULL: this build has no C functions.
func deleter() uintptr { return 0 }

// callDeleter does nothing: Import refuses structures with a C deleter.
func callDeleter(function, address uintptr) {}
