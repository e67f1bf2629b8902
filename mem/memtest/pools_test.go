package memtest_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// A sound allocator passes: the suite itself makes no mistake that the simulated device finds.
func TestRunPools(t *testing.T) {
	memtest.RunPools(t, memtest.Config{New: func(t testing.TB, dev driver.Device) mem.Allocator {
		return memtest.New(t, caching.New, dev, caching.Default())
	}})
}
