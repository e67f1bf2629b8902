//go:build !amd64

package host

// kernelSets returns the kernels that this processor can run, the best first.
func kernelSets[T number]() []kernels[T] { return []kernels[T]{plain[T]()} }
