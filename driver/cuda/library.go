//go:build linux && (amd64 || arm64) && !nocuda && !fakecuda

package cuda

import (
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/dl"
)

// openLibrary loads libcuda.
func openLibrary() (*cu.Lib, dl.Tries, error) { return cu.Open() }
