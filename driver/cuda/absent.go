//go:build !linux || !(amd64 || arm64) || nocuda

// Package cuda is the driver of NVIDIA's GPUs, left out of this program: it was built with the tag nocuda, or for a system
// for which it has no code. It is registered all the same, so that opening a device says so.
package cuda

import (
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
)

type absentDriver struct{}

func init() { driver.Register("cuda", absentDriver{}) }

// reason says why the driver is not here, and what to do.
func reason() (why, advice string) {
	if runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64") {
		return "this program was built with the tag nocuda", "build it without the tag nocuda"
	}
	return "this program has no code for NVIDIA's driver on " + runtime.GOOS + "/" + runtime.GOARCH,
		"use linux/amd64 or linux/arm64"
}

func unsupported(call string) error {
	why, advice := reason()
	return &driver.Error{Call: call, Code: driver.ErrUnsupported, Detail: why + ": " + advice}
}

// Open fails.
func (absentDriver) Open(string) (driver.Device, error) { return nil, unsupported("Open") }

// Devices fails.
func (absentDriver) Devices() ([]driver.Listing, error) { return nil, unsupported("Devices") }

// Diagnose says why.
func (absentDriver) Diagnose() []driver.Finding {
	why, advice := reason()
	return []driver.Finding{{What: "the driver cuda", Found: why, State: driver.Broken, Do: advice}}
}
