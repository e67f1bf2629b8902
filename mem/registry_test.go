package mem_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// TestRegistryGivesOutByDeviceAndPriority: by name, and without one the highest priority of those for the device.
func TestRegistryGivesOutByDeviceAndPriority(t *testing.T) {
	made := func(which string) mem.Factory {
		return func(_ driver.Device, settings string) (mem.Allocator, error) {
			return nil, errors.New(which + " " + settings)
		}
	}
	mem.RegisterInTest(t)
	mem.Register("registry-low", "", -10, made("low"))
	mem.Register("registry-high", "host", 1000, made("high"))
	mem.Register("registry-low", "sim", -20, made("low of sim"))
	host, sim := drivertest.OpenDevice(t, "host"), drivertest.OpenDevice(t, "sim:total=1GiB")
	for _, c := range []struct {
		spec string
		dev  driver.Device
		want string
	}{
		{"", host, "high "},
		{"registry-low", host, "low "},
		{"registry-low:a:1", sim, "low of sim a:1"},
		{"registry-high:x", host, "high x"},
	} {
		if _, err := mem.Open(c.spec, c.dev); err == nil || err.Error() != c.want {
			t.Errorf("%q for %s: %v, want %q", c.spec, c.dev.Info().Driver, err, c.want)
		}
	}
	a, err := mem.Open("", sim)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := a.(*caching.Allocator); !ok {
		t.Errorf("without a name, sim has a %T", a)
	}
	if err := a.(*caching.Allocator).Close(); err != nil {
		t.Error(err)
	}
	_, err = mem.Open("registry-high", sim)
	if !errors.Is(err, mem.ErrUnknown) || !strings.Contains(err.Error(), "caching") {
		t.Errorf("an allocator of another device: %v, want ErrUnknown and what there is", err)
	}
	if names := mem.Allocators("host"); names[0] != "registry-high" || !slices.Contains(names, "caching") {
		t.Errorf("allocators of host: %v", names)
	}
	for _, name := range []string{"", "a:b", "registry-high"} {
		testkit.WantPanic(t, fmt.Sprintf("Register of %q", name), "", func() { mem.Register(name, "host", 0, made("x")) })
	}
}

// Each test that registers allocators can run again, and leaves the registry as it was for the others.
func TestDefect27_TestsTakeBackAllocators(t *testing.T) {
	drivers := []string{"", "host", "sim", "sim:", "unasked"}
	names := func() (all [][]string) {
		for _, device := range drivers {
			all = append(all, mem.Allocators(device))
		}
		return all
	}
	before := names()
	for range 2 {
		t.Run("Registry", TestRegistryGivesOutByDeviceAndPriority)
		t.Run("Lacking", TestADeviceWithoutPageLockedMemory)
		t.Run("Unasked", TestHostMemoryMustBeAskedFor)
		for i, after := range names() {
			if !slices.Equal(after, before[i]) {
				t.Fatalf("allocators of %q: %v, want %v as before", drivers[i], after, before[i])
			}
		}
	}
}

func TestRegistryOpensWithSettings(t *testing.T) {
	dev := drivertest.OpenDevice(t, "sim:total=1GiB")
	a, err := mem.Open("caching:expandable_segments:True,limit:64MiB", dev)
	if err != nil {
		t.Fatal(err)
	}
	c := a.(*caching.Allocator)
	if !c.Config().ExpandableSegments {
		t.Error("the settings were not taken")
	}
	if _, err := a.Alloc(dev.DefaultStream(), 65<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := mem.Open("caching:nonsense:1", dev); err == nil {
		t.Error("a setting that there is not was taken")
	}
}
