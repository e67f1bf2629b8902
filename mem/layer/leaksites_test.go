package layer_test

import (
	"io"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// The error of an allocator closed with live blocks explains how to find out who allocated them.
func TestDefect24_CloseTellsHowToFindLeaks(t *testing.T) {
	open := map[string]func(dev driver.Device) (mem.Allocator, error){
		"arena":   func(dev driver.Device) (mem.Allocator, error) { return arena.New(dev, arena.Config{Size: 8 << 20}) },
		"bfc":     func(dev driver.Device) (mem.Allocator, error) { return bfc.New(dev, bfc.Config{}) },
		"caching": func(dev driver.Device) (mem.Allocator, error) { return caching.New(dev, caching.Default()) },
		"direct":  func(dev driver.Device) (mem.Allocator, error) { return direct.New(dev, direct.Config{}), nil },
		"paged":   func(dev driver.Device) (mem.Allocator, error) { return paged.New(dev, paged.Config{}) },
		"planned": func(dev driver.Device) (mem.Allocator, error) {
			plan := &planned.Plan{Streams: []planned.StreamPlan{{Loop: -1, Size: 4096, Slots: []planned.Slot{{Size: 4096, End: planned.Forever}}}}}
			return planned.New(dev, plan, planned.Settings{Fallback: direct.New(dev, direct.Config{})})
		},
	}
	for name, open := range open {
		dev := drivertest.OpenSim(t, 64<<20)
		a, err := open(dev)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := a.Alloc(dev.DefaultStream(), 4096)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		const want = "; layer.NewLeakTracker shows where they were allocated"
		if err := a.(io.Closer).Close(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Close with a live block: %v", name, err)
		}
		a.Free(b)
		if err := a.(io.Closer).Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A tracker set to record few stacks, or none, says so where a stack is missing.
func TestDefect24_TrackersSayWhyAStackIsMissing(t *testing.T) {
	for want, o := range map[string]layer.LeakTrackerOptions{
		"layer.LeakTrackerOptions.Depth is negative; 0 records 16 calls": {Depth: -1},
		"layer.LeakTrackerOptions.Every is 3; 1 records each":            {Every: 3},
	} {
		dev := drivertest.OpenSim(t, 0)
		tr := layer.NewLeakTracker(direct.New(dev, direct.Config{}), o)
		b, err := tr.Alloc(dev.DefaultStream(), 512)
		if err != nil {
			t.Fatal(err)
		}
		if text := tr.Leaks().String(); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
		testkit.Contains(t, testkit.Panic(t, func() { tr.Free(mem.Block{Ptr: b.Ptr, Size: b.Size + 512}) }), want)
		tr.Free(b)
	}
}
