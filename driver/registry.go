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

	// Devices lists the devices that Open can open, without opening them. If there are none, the error says why: it
	// matches ErrAbsent if there is no hardware or no library for it, and ErrUnsupported if this program has no code
	// for it.
	Devices() ([]Listing, error)

	// Diagnose checks everything that the driver needs and reports each item, in the order in which the driver needs
	// it. It closes everything that it opens.
	Diagnose() []Finding
}

// A Listing is a device that can be opened.
type Listing struct {
	Spec string // the spec for Open: "cuda:0"
	Info Info
	Free int64 // bytes not in use; -1 if only an open device can tell
}

// A Finding is the state of one thing that a driver needs, or could use, on this machine.
type Finding struct {
	What  string // "the library libcuda"
	Where string // what was looked at: names, paths; may be empty
	Found string // what was there: a version, a count, an error
	State State
	Do    string // what to do about it; empty if nothing
}

// State says how much a Finding matters.
type State uint8

// These are the states, from good to bad.
const (
	Good    State = iota // as it should be
	Lacking              // something optional is missing
	Broken               // the driver cannot work
)

func (s State) String() string { return [...]string{"good", "lacking", "broken"}[s] }

var (
	registryMu sync.RWMutex
	registry   = map[string]Driver{}
)

// Register makes a driver available under name. It panics if the name is empty, holds a colon or is taken.
func Register(name string, d Driver) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if name == "" || strings.Contains(name, ":") || d == nil {
		panic(fmt.Sprintf("driver: Register of %q: the name must not be empty nor hold a colon, the driver not nil",
			name))
	}
	if _, taken := registry[name]; taken {
		panic(fmt.Sprintf("driver: Register of %q: the name is taken", name))
	}
	registry[name] = d
}

// Open opens a device from a spec "name" or "name:args", such as "sim:total=1GiB" or "cuda:0". The error matches
// ErrUnknown if the program links no driver of that name. For a driver of Ashlar it names the import to add.
func Open(spec string) (Device, error) {
	name, args, _ := strings.Cut(spec, ":")
	d := Lookup(name)
	if d == nil {
		return nil, &Error{Call: "Open", Code: ErrUnknown, Detail: missing(name, Drivers())}
	}
	return d.Open(args)
}

// imports are the packages of Ashlar's drivers, by the names that they register.
var imports = map[string]string{
	"cuda":  "github.com/ashlar-go/ashlar/driver/cuda",
	"fault": "github.com/ashlar-go/ashlar/driver/fault",
	"host":  "github.com/ashlar-go/ashlar/driver/host",
	"sim":   "github.com/ashlar-go/ashlar/driver/sim",
}

// missing says what to do about a driver that is not registered.
func missing(name string, registered []string) string {
	text := fmt.Sprintf("%q; ", name)
	if path := imports[name]; path != "" {
		text += fmt.Sprintf("add import _ %q; ", path)
	}
	if len(registered) == 0 {
		return text + "this program has: none"
	}
	return text + "this program has: " + strings.Join(registered, ", ")
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

// Lookup returns the driver registered under name, or nil.
func Lookup(name string) Driver {
	registryMu.RLock()
	defer registryMu.RUnlock()
	return registry[name]
}
