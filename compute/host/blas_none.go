//go:build !linux || !(amd64 || arm64) || nocuda

package host

// There is no OpenBLAS: this program has no dlopen.

func blasFunction[T number]() uintptr { return 0 }

func blas[T number](_, _, _ *matrix[T]) bool { return false }
