//go:build gpu

package engine

import "testing"

// A GPU's memory, descriptors and host memory do not grow either. No other program may use the GPU during the test.
func TestGPUSoak(t *testing.T) { soakEngine(t, "cuda:0") }
