//go:build libashlar

// Command libashlar is a shared library with which programs that are not written in Go, such as PyTorch, allocate
// memory from Ashlar. Its interface is ashlar.h. Building it takes a C compiler and a build tag:
//
//	go build -tags libashlar -buildmode=c-shared -o libashlar.so ./cmd/libashlar
//
// With the tag fakecuda too, it contains two small simulated GPUs in place of NVIDIA's driver, for tests without a GPU.
package main

// # Structure
//
// Callers use the functions of guard.c. Each first checks that Go may be entered: not in a child made by fork, whose Go
// runtime has lost its threads, and not once the process is ending. Then it calls its counterpart in exports.go, which
// converts C's arguments to Go's and errors to statuses. internal/dropin does the work.
//
// driver/cuda restores the thread's CUDA context after every batch of driver calls.

func main() {} // required by buildmode=c-shared, and never called
