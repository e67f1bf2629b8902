//go:build gpu

package main

import "testing"

func TestGPUAgreesWithPyTorch(t *testing.T) { agrees(t, "cuda:0") }

func TestGPULimit(t *testing.T) { meetsLimit(t, "cuda:0") }

func TestGPUTrainsInHalfItsMemory(t *testing.T) {
	trainsInHalf(t, "cuda:0", "-layers 6 -width 256 -hidden 704 -heads 8 -tokens 256 -steps 6")
}
