package mem

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
)

// Every allocator in this repository that registers a name is known with its import.
func TestDefect23_ImportsOfAllocatorsAreKnown(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{"": imports["caching"]}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`mem\.Register(?:For)?\(.*?"(\w+)", "", \d+`).FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = "github.com/ashlar-go/ashlar/mem/" + filepath.Base(filepath.Dir(file))
		}
	}
	if !maps.Equal(found, imports) {
		t.Errorf("registered are %v, known %v", found, imports)
	}
}

// The error for an allocator that a program lacks names the import that brings it.
func TestDefect23_UnknownAllocatorsNameTheImport(t *testing.T) {
	registryMu.Lock()
	before := registry
	registry = nil
	registryMu.Unlock()
	t.Cleanup(func() {
		registryMu.Lock()
		defer registryMu.Unlock()
		registry = before
	})
	dev := drivertest.OpenSim(t, 0)
	onHost := drivertest.OpenDevice(t, "host:total=1MiB")
	add := func(name string) string {
		return `add import _ "github.com/ashlar-go/ashlar/mem/` + name + `"; this program has: none`
	}
	for spec, want := range map[string]string{
		"caching:limit:1GiB": add("caching"), "bfc": add("bfc"), "arena:size=1GiB": add("arena"), "paged": add("paged"), "direct": add("direct"),
		"pinned": add("pinned"), "": add("caching"), "nosuch": `"nosuch" for devices of sim; this program has: none`,
	} {
		if _, err := Open(spec, dev); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", spec, err, want)
		}
	}
	for _, c := range []struct {
		dev  driver.Device
		want Attributes
		says string
	}{
		{dev, 0, add("caching")},
		{dev, GPUCompatible | TrackSizes, add("caching")},
		{dev, OnHost | GPUCompatible, add("pinned")},
		{dev, NICCompatible, "for nic_compatible memory of devices of sim; this program has: none"},
		{onHost, OnHost | GPUCompatible, add("caching")},
	} {
		if _, err := AllocatorFor(c.dev, c.want); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v for %s: %v, want %q in it", c.want, c.dev.Info().Driver, err, c.says)
		}
	}
}
