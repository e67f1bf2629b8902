//go:build linux && (amd64 || arm64) && !nocuda && fakecuda

package cuda

import (
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/internal/dl"
)

// openLibrary makes a machine with two small simulated GPUs, for tests of programs that cannot hand in a library of
// their own, such as cmd/libashlar.
func openLibrary() (*cu.Lib, dl.Tries, error) {
	return cu.New(fakecuda.New(fakecuda.Options{Pace: fakecuda.AtOnce}).Lookup), dl.Tries{{Name: "fakecuda"}}, nil
}
