//go:build !linux || !(amd64 || arm64) || nocuda

// Package cuda is the driver of NVIDIA's GPUs. It is not in this program, which was built with the tag nocuda or for an
// unsupported system. The driver is still registered, so that opening a device returns an error with the reason.
package cuda

import (
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
)

type absentDriver struct{}

func init() { driver.Register("cuda", absentDriver{}) }

// reason returns why the driver is missing and what to do.
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

// Open returns an error.
func (absentDriver) Open(string) (driver.Device, error) { return nil, unsupported("Open") }

// Devices returns an error.
func (absentDriver) Devices() ([]driver.Listing, error) { return nil, unsupported("Devices") }

// Diagnose reports the reason.
func (absentDriver) Diagnose() []driver.Finding {
	why, advice := reason()
	return []driver.Finding{{What: "the driver cuda", Found: why, State: driver.Broken, Do: advice}}
}
