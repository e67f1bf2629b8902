//go:build !linux || !(amd64 || arm64) || nocuda

package dlpack

// canCall says that C deleters cannot be called.
const canCall = false

// deleter returns NULL: this program has no C functions.
func deleter() uintptr { return 0 }

// callDeleter does nothing: a structure of C is refused, and its deleter stays uncalled.
func callDeleter(function, address uintptr) {}
