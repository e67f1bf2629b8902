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

// A Factory makes an allocator of a device's memory. Settings are in the allocator's own syntax; empty means its
// defaults.
type Factory func(dev driver.Device, settings string) (Allocator, error)

// ErrUnknown is matched by the error for an allocator that is not registered.
var ErrUnknown = errors.New("mem: no such allocator")

// A registration is an allocator that can be opened.
type registration struct {
	name     string
	device   string // the driver whose devices it is for; empty: all
	priority int
	provides Attributes
	factory  Factory
}

var (
	registryMu sync.RWMutex
	registry   []registration // the highest priority first, names in order among equals

	sizeTracking func(a Allocator) SizeTracker // set by mem/layer
)

func (r *registration) serves(driver string) bool { return r.device == "" || r.device == driver }

// Register makes an allocator available under name for the devices of a driver ("cuda", "host"), or of every driver if
// device is empty. Open without a name uses the allocator with the highest priority, and among equals the first in the
// order of names. Register is for init functions: it panics if the name is empty, holds a colon, or is taken for the
// same devices.
func Register(name, device string, priority int, f Factory) {
	RegisterFor(0, name, device, priority, f)
}

// RegisterFor is Register for an allocator that provides these attributes, so that AllocatorFor finds it. Open without
// a name does not use an allocator of host memory for other devices (OnHost). The attributes that all memory of a
// device has (see OwnAttributes) are added automatically. TensorFlow prefers allocators that know NUMA nodes; here
// those have higher priorities.
func RegisterFor(provides Attributes, name, device string, priority int, f Factory) {
	if name == "" || strings.Contains(name, ":") || f == nil {
		panic(fmt.Sprintf("mem: Register of %q: the name must not be empty nor hold a colon, the factory not nil",
			name))
	}
	registryMu.Lock()
	defer registryMu.Unlock()
	for _, r := range registry {
		if r.name == name && r.device == device {
			panic(fmt.Sprintf("mem: Register of %q for %q: the name is taken", name, device))
		}
	}
	registry = append(registry, registration{name, device, priority, provides, f})
	slices.SortFunc(registry, func(a, b registration) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.name, b.name), cmp.Compare(b.device, a.device))
	})
}

// RegisterSizeTracking sets how AllocatorFor makes a SizeTracker of an allocator that is not one. The returned
// SizeTracker is an io.Closer if the allocator is. It is for the init function of package layer.
func RegisterSizeTracking(wrap func(a Allocator) SizeTracker) {
	registryMu.Lock()
	defer registryMu.Unlock()
	sizeTracking = wrap
}

// Open makes an allocator of dev's memory from a spec "name" or "name:settings", such as
// "caching:expandable_segments:True". An empty spec means the allocator with the highest priority for dev. If the name
// is registered both for dev's driver and for every driver, Open uses the former. The error matches ErrUnknown if there
// is none, and names the import to add. For a layer.LimitedDevice the allocator's out-of-memory errors explain that
// limit.
func Open(spec string, dev driver.Device) (Allocator, error) {
	name, settings, _ := strings.Cut(spec, ":")
	kind := dev.Info().Driver
	var found *registration
	registryMu.RLock()
	for i := range registry {
		r := &registry[i]
		if !r.serves(kind) || (name != "" && r.name != name) || (name == "" && r.provides&OnHost != 0) {
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
		return nil, missing(fmt.Sprintf("%q for devices", name), kind, name, Allocators(kind))
	}
	a, err := factory(dev, settings)
	if limited, ok := dev.(interface{ Over(a Allocator) Allocator }); ok && err == nil { // a layer.LimitedDevice
		a = limited.Over(a)
	}
	return a, err
}

// Allocators returns the names that Open knows for the devices of a driver, the highest priority first.
func Allocators(device string) []string {
	registryMu.RLock()
	defer registryMu.RUnlock()
	var names []string
	for _, r := range registry {
		if r.serves(device) && !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}

// OwnAttributes returns the attributes of all of a device's own memory: GPUCompatible, and OnHost if Go code can access
// it.
func OwnAttributes(dev driver.Device) Attributes {
	if dev.Visible() != nil {
		return GPUCompatible | OnHost
	}
	return GPUCompatible
}

// AllocatorFor makes an allocator of memory with all attributes in want, for work on dev: the one with the highest
// priority, and among equals the first in the order of names, with its default settings. Without OnHost the memory is
// dev's own. With OnHost, for a device whose memory Go code cannot access, it is page-locked memory (mem/pinned) for
// OnHost|GPUCompatible and ordinary memory for OnHost alone. Such allocators implement driver.Visible, return blocks
// that no queued work accesses, and are not counted by the device's allocators.
//
// TrackSizes wraps the allocator in a layer.SizeTracker, unless it is a SizeTracker. An allocator for which the device
// or the program lacks something (driver.ErrUnsupported, driver.ErrUnknown) is skipped. The caller closes the result,
// if it is an io.Closer, before the device. The error matches ErrUnknown if there is no such allocator, and lists the
// registered ones.
func AllocatorFor(dev driver.Device, want Attributes) (Allocator, error) {
	kind := dev.Info().Driver
	registryMu.RLock()
	trackSizes := sizeTracking
	var fit []registration
	var known []string
	for _, r := range registry {
		if !r.serves(kind) {
			continue
		}
		has := r.provides | TrackSizes
		if r.provides&OnHost == 0 {
			has |= OwnAttributes(dev)
		}
		known = append(known, fmt.Sprintf("%s (%v)", r.name, has&^TrackSizes))
		if has.Satisfies(want) && r.provides&OnHost <= want&OnHost {
			fit = append(fit, r)
		}
	}
	registryMu.RUnlock()
	if want&TrackSizes != 0 && trackSizes == nil {
		return nil, errors.New("mem: AllocatorFor with TrackSizes: import github.com/ashlar-go/ashlar/mem/layer")
	}
	var passed []error
	for _, r := range fit {
		a, err := r.factory(dev, "")
		switch {
		case err == nil:
			if _, tracks := a.(SizeTracker); want&TrackSizes != 0 && !tracks {
				return trackSizes(a), nil
			}
			return a, nil
		case !errors.Is(err, driver.ErrUnsupported) && !errors.Is(err, driver.ErrUnknown):
			return nil, err
		}
		passed = append(passed, err)
	}
	name := provider(dev, want)
	if len(fit) > 0 {
		name = "none" // it is linked in, and lacks something else
	}
	none := missing(fmt.Sprintf("for %v memory of devices", want), kind, name, known)
	return nil, errors.Join(append([]error{none}, passed...)...)
}
