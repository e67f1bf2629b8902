package bfc_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// newAllocator makes an allocator, and checks its invariants when the test ends.
func newAllocator(t testing.TB, dev driver.Device, cfg bfc.Config) *bfc.Allocator {
	t.Helper()
	return memtest.New(t, bfc.New, dev, cfg)
}

// configs are the ways in which the allocator gets its memory, and forgets who had it.
func configs() map[string]bfc.Config {
	return map[string]bfc.Config{
		"growth":  {},
		"whole":   {NoGrowth: true},
		"virtual": {Virtual: true},
		"stamped": {Counter: &bfc.Counter{}},
	}
}

func TestConformance(t *testing.T) {
	memtest.RunAll(t, memtest.Config{Waits: true, Ops: 600, Seeds: 3, FaultOps: 30}, bfc.New, configs())
}
