package mem

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
)

// A Factory makes an allocator of a device's memory. Settings are in the allocator's own syntax; empty means its defaults.
type Factory func(dev driver.Device, settings string) (Allocator, error)

// ErrUnknown is matched by the error for an allocator that nobody has registered.
var ErrUnknown = errors.New("mem: no such allocator")

// A registration is an allocator that can be opened.
type registration struct {
	name     string
	device   string // the driver whose devices it is for; empty: all
	priority int
	factory  Factory
}

var (
	registryMu sync.RWMutex
	registry   []registration // the highest priority first, names in order among equals
)

// Register makes an allocator available under name for the devices of a driver ("cuda", "host"), or of every driver if
// device is empty, as PyTorch's allocators are set by type of device and TensorFlow's by priority. Where no name is asked
// for, Open gives the highest priority out, among equals the first name in order. It is for init functions: it panics if
// the name is empty, holds a colon, or is taken for the same devices.
func Register(name, device string, priority int, f Factory) {
	if name == "" || strings.Contains(name, ":") || f == nil {
		panic(fmt.Sprintf("mem: Register of %q: the name must not be empty nor hold a colon, the factory not nil", name))
	}
	registryMu.Lock()
	defer registryMu.Unlock()
	for _, r := range registry {
		if r.name == name && r.device == device {
			panic(fmt.Sprintf("mem: Register of %q for %q: the name is taken", name, device))
		}
	}
	registry = append(registry, registration{name, device, priority, f})
	slices.SortFunc(registry, func(a, b registration) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.name, b.name), cmp.Compare(b.device, a.device))
	})
}

// Open makes an allocator of dev's memory from a spec "name" or "name:settings", such as
// "caching:expandable_segments:True", or from an empty one, which is the allocator of the highest priority for dev. Of two
// of one name, that for dev's driver alone is meant. The error matches ErrUnknown if there is none.
func Open(spec string, dev driver.Device) (Allocator, error) {
	name, settings, _ := strings.Cut(spec, ":")
	kind := dev.Info().Driver
	var found *registration
	registryMu.RLock()
	for i := range registry {
		r := &registry[i]
		if (r.device != "" && r.device != kind) || (name != "" && r.name != name) {
			continue
		}
		if found == nil || (name != "" && found.device == "") {
			found = r
		}
	}
	var factory Factory
	if found != nil {
		factory = found.factory
	}
	registryMu.RUnlock()
	if factory == nil {
		return nil, fmt.Errorf("%w: %q for devices of %s; this program has: %s", ErrUnknown, name, kind,
			strings.Join(Allocators(kind), ", "))
	}
	return factory(dev, settings)
}

// Allocators returns the names that Open knows for the devices of a driver, the highest priority first.
func Allocators(device string) []string {
	registryMu.RLock()
	defer registryMu.RUnlock()
	var names []string
	for _, r := range registry {
		if (r.device == "" || r.device == device) && !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}
