// Package dl opens shared libraries at run time, without cgo.
//
// A library has several names and possible places, so Open takes a list and tries it in order. The error lists every
// attempt with its cause. Symbols are looked up one by one: a library without one of them still serves the others.
//
// Libraries open on Linux on amd64 and arm64, through github.com/ebitengine/purego. On other platforms, and with the
// build tag nocuda, which keeps a program free of libc, Open fails with ErrNone.
//
// Libraries are never closed: a driver's library has threads and state of its own, and unloading it crashes them.
package dl

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNone is the cause of every failed try where this program has no dlopen.
var ErrNone = errors.New("this program was built without dlopen")

// A Try is one name or path that Open tried, and what came of it. Err is nil for the one that was opened.
type Try struct {
	Name string
	Err  error
}

// Tries are the names that Open tried, in order.
type Tries []Try

// notFound is what the loader says, after the name, of a file that is not there. It says the same, with another name,
// of a file that is there and needs one that is not.
const notFound = "cannot open shared object file: No such file or directory"

// String says what came of the tries: names of which the same is to be said stand together, in the order of the first.
func (t Tries) String() string {
	var reasons []string
	names := map[string][]string{}
	for _, try := range t {
		reason := "opened"
		if try.Err != nil {
			reason = strings.TrimPrefix(try.Err.Error(), try.Name+": ")
		}
		if reason == notFound {
			reason = "not found"
		}
		if names[reason] == nil {
			reasons = append(reasons, reason)
		}
		names[reason] = append(names[reason], try.Name)
	}
	if missing := names["not found"]; len(missing) > 1 && len(reasons) == 1 {
		return "none of " + strings.Join(missing, ", ") + " was found"
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(names[reason], ", ") + ": " + reason
	}
	return strings.Join(reasons, "; ")
}

// Opened returns the name that was opened, or "".
func (t Tries) Opened() string {
	for _, try := range t {
		if try.Err == nil {
			return try.Name
		}
	}
	return ""
}

// A Library is an open shared library. It stays open until the program ends. Safe for concurrent use.
type Library struct{ handle uintptr }

// Open opens the first of the names that can be opened. A name without a slash is looked for where the system's loader
// looks. The error is nil exactly if a library was opened; the tries are returned in either case.
func Open(names ...string) (*Library, Tries, error) {
	var tries Tries
	for _, name := range names {
		handle, err := open(name)
		tries = append(tries, Try{name, err})
		if err == nil {
			return &Library{handle}, tries, nil
		}
	}
	return nil, tries, failure(tries)
}

// A failure is the error of tries of which none succeeded. It matches what each of them failed with.
type failure Tries

func (f failure) Error() string { return Tries(f).String() }

func (f failure) Unwrap() []error {
	errs := make([]error, len(f))
	for i, try := range f {
		errs[i] = try.Err
	}
	return errs
}

// Lookup returns the address of a symbol of the library, or of those that it was linked with.
func (l *Library) Lookup(symbol string) (uintptr, error) {
	address, err := lookup(l.handle, symbol)
	if err != nil {
		return 0, fmt.Errorf("symbol %s: %w", symbol, err)
	}
	return address, nil
}
