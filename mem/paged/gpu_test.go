//go:build gpu

package paged_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// The conformance suite on a gibibyte of a real GPU: filled to the end, libcuda takes some more for itself, and keeps it.
// A device stays open all the while, so that opening one more makes no context.
func TestConformanceOnCUDA(t *testing.T) {
	open := func(t testing.TB) driver.Device {
		d, err := driver.Open("cuda:0,total=1GiB")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := open(t)
	defer first.Close()
	for name, cfg := range map[string]paged.Config{
		"defaults": {}, "limit": {Limit: 192 << 20}, "returning": {Keep: paged.KeepNone}, "plain": {NoAliases: true},
	} {
		t.Run(name, func(t *testing.T) {
			memtest.Run(t, memtest.Config{
				Device: open,
				New:    func(t testing.TB, dev driver.Device) mem.Allocator { return newAllocator(t, dev, cfg) },
				Waits:  true, Alignment: 512, Ops: 600, Seeds: 2, FaultOps: 10,
			})
		})
	}
}
