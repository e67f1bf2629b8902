//go:build gpu

package paged_test

import (
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// The conformance suite on a gibibyte of a real GPU: filled to the end, libcuda takes some more for itself, and keeps it.
// A device stays open all the while, so that opening one more makes no context.
func TestConformanceOnCUDA(t *testing.T) {
	open := memtest.On("cuda:0,total=1GiB")
	defer open(t).Close()
	suite := memtest.Config{Device: open, Waits: true, Alignment: 512, Ops: 600, Seeds: 2, FaultOps: 10}
	memtest.RunAll(t, suite, paged.New, map[string]paged.Config{
		"defaults": {}, "limit": {Limit: 192 << 20}, "returning": {Keep: paged.KeepNone}, "plain": {NoAliases: true},
	})
}
