package driver

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A Driver opens devices of one kind. It registers itself under its name, as database/sql drivers do.
type Driver interface {
	// Open opens the device that args describe: the text after the driver's name and a colon in Open's spec, in the
	// driver's own syntax (sim: "total=1GiB,seed=7"; cuda: "0"). Empty means the driver's default device.
	Open(args string) (Device, error)
}

var (
	registryMu sync.RWMutex
	registry   = map[string]Driver{}
)

// Register makes a driver available under name. It panics if the name is empty, holds a colon or is taken.
func Register(name string, d Driver) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if name == "" || strings.Contains(name, ":") || d == nil {
		panic(fmt.Sprintf("driver: Register of %q: the name must not be empty nor hold a colon, the driver not nil", name))
	}
	if _, taken := registry[name]; taken {
		panic(fmt.Sprintf("driver: Register of %q: the name is taken", name))
	}
	registry[name] = d
}

// Open opens a device from a spec "name" or "name:args", such as "sim:total=1GiB" or "cuda:0". The error matches
// ErrUnknown if no driver of that name is linked into the program.
func Open(spec string) (Device, error) {
	name, args, _ := strings.Cut(spec, ":")
	registryMu.RLock()
	d := registry[name]
	registryMu.RUnlock()
	if d == nil {
		return nil, &Error{
			Call: "Open", Code: ErrUnknown,
			Detail: fmt.Sprintf("%q; this program has: %s", name, strings.Join(Drivers(), ", ")),
		}
	}
	return d.Open(args)
}

// Drivers returns the names of the registered drivers, sorted.
func Drivers() []string {
	registryMu.RLock()
	defer registryMu.RUnlock()
	names := make([]string, 0, len(registry))
	for name := range registry {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
