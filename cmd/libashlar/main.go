//go:build libashlar

// Command libashlar is the shared library by which programs that are not written in Go, such as PyTorch, allocate from
// Ashlar. ashlar.h is its interface. It needs a C compiler, so it is built under a tag:
//
//	go build -tags libashlar -buildmode=c-shared -o libashlar.so ./cmd/libashlar
//
// Under the tag fakecuda as well it has two small simulated GPUs in place of NVIDIA's driver, for tests without one.
package main

// # Structure
//
// Callers see the functions of guard.c. Each looks whether Go may be entered at all: not in a child made by fork, whose
// Go runtime has lost its threads, and not once the process ends. Then it calls its counterpart in exports.go, which
// turns C's arguments into Go's and errors into statuses. The work is done by internal/dropin.
//
// The thread's CUDA context is put back by driver/cuda, around every batch of driver calls.

func main() {} // required by buildmode=c-shared, and never called
