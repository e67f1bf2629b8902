package magazine_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// A setting is mem/caching's settings in PyTorch's syntax, and the options of a Cache over it.
type setting struct {
	below string
	opts  magazine.Options
}

func construct(dev driver.Device, s setting) (*magazine.Cache, error) {
	cfg, _, err := caching.ParseConfig(s.below)
	if err != nil {
		return nil, err
	}
	below, err := caching.New(dev, cfg)
	if err != nil {
		return nil, err
	}
	return magazine.New(below, s.opts), nil
}

// over makes a Cache over mem/caching with settings in PyTorch's syntax, whose invariants it checks when the test ends.
func over(t testing.TB, dev driver.Device, settings string, opts magazine.Options) (*magazine.Cache, *caching.Allocator) {
	t.Helper()
	c, err := construct(dev, setting{settings, opts})
	testkit.Must(t, err)
	below, _ := mem.Find[*caching.Allocator](c)
	t.Cleanup(func() { testkit.Must(t, below.Check()) })
	return c, below
}

func TestConformance(t *testing.T) {
	memtest.RunAll(t, memtest.Config{LowRequestedPeak: true, Ops: 700, Seeds: 4, FaultOps: 30}, construct, map[string]setting{
		"default":          {"", magazine.Options{}},
		"large blocks too": {"", magazine.Options{MaxSize: 8 << 20}},
		"tight bounds":     {"", magazine.Options{MaxSize: 8 << 20, Stream: 4 << 20, Total: 6 << 20}},
		"expandable":       {"expandable_segments:True", magazine.Options{MaxSize: 8 << 20}},
		"roundup":          {"roundup_power2_divisions:4", magazine.Options{MaxSize: 8 << 20}},
		"gc":               {"garbage_collection_threshold:0.5,limit:200MiB", magazine.Options{}},
	})
}

// A Cache on another is of no use, and no harm: each layer corrects the reports of the one below.
func TestConformanceOfTwo(t *testing.T) {
	two := func(dev driver.Device, s setting) (*magazine.Cache, error) {
		c, err := construct(dev, s)
		return magazine.New(c, magazine.Options{}), err
	}
	memtest.RunAll(t, memtest.Config{LowRequestedPeak: true, Ops: 300, Seeds: 2, FaultOps: 15}, two, map[string]setting{
		"large blocks too": {"", magazine.Options{MaxSize: 8 << 20}},
	})
}
