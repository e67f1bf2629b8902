//go:build gpu

package remat_test

import (
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/cuda"
)

func TestGPURandomPrograms(t *testing.T) { randomPrograms(t, "cuda:0", 20) }
