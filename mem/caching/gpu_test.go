//go:build gpu

package caching_test

import (
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// The conformance suite on a gibibyte of a real GPU: filled to the end, libcuda takes some more for itself, and keeps it.
// A device stays open all the while, so that opening one more makes no context.
func TestConformanceOnCUDA(t *testing.T) {
	open := memtest.On("cuda:0,total=1GiB")
	defer open(t).Close()
	memtest.RunAll(t, memtest.Config{Device: open, Ops: 600, Seeds: 3, FaultOps: 12}, construct, conformanceSettings)
}
