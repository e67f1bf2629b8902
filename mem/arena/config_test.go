package arena_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// Arenas open by name, with settings, and errors name the wrong setting.
func TestRegistry(t *testing.T) {
	dev := closeDevice(t, sim.New(sim.Options{Total: 64 << 20, Granularity: 64 * kib}))
	a, err := mem.Open("arena: size = 1MiB, round= 1k ,limit=512KiB,page=64KiB,bounce=64KiB,compact=off", dev)
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Alloc(dev.DefaultStream(), 1)
	if err != nil || b.Size != 1024 {
		t.Errorf("Alloc of a byte: %+v, %v", b, err)
	}
	a.Free(b)
	if err := a.(*arena.Arena).Close(); err != nil {
		t.Error(err)
	}
	for settings, want := range map[string]string{
		"size":                  `setting "size" at 0: want size=VALUE`,
		"size=1MiB,size=2MiB":   `setting "size" at 10: given twice`,
		"size=lots":             `setting "size" at 0: size "lots"`,
		"colour=red":            `setting "colour" at 0: unknown`,
		"":                      "",
		"size=1MiB,":            `setting "" at 10: unknown`,
		"compact=no":            `want on or off, got "no"`,
		"round=1000,size=1MiB":  "round is 1000 bytes: want a multiple of 512",
		"size=100":              "a region of 0: want at least one block, of 512",
		"size=1PiB":             "out of device memory",
		"page=1000,size=1MiB":   "not a multiple of the granularity",
		"size=100PiB":           "size is 112589990684262400 bytes: want 0 to 65536TiB",
		"limit=1MiB,bounce=1kx": `setting "bounce"`,
	} {
		a, err := mem.Open("arena:"+settings, dev)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("settings %q: %v: want %q in it", settings, err, want)
		}
		if err == nil {
			if size := a.(*arena.Arena).Size(); size != 48<<20 {
				t.Errorf("an arena of a device with 64 MiB has %d bytes: want a quarter left", size)
			}
			if err := a.(*arena.Arena).Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := arena.New(dev, arena.Config{Size: 1 << 50}); !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("a region larger than the device: %v", err)
	}
	all := drivertest.Alloc(t, dev, 64<<20)
	if _, err := arena.New(dev, arena.Config{}); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("what is free of a full device: %v", err)
	}
	if err := dev.Free(all); err != nil {
		t.Error(err)
	}
	none := closeDevice(t, sim.New(sim.Options{Total: 64 << 20, NoVirtualMemory: true}))
	if _, err := arena.New(none, arena.Config{Page: 2 << 20}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("pages on a device without: %v", err)
	}
}
