// Package callsite records where a program called Ashlar: call stacks that begin at the first function outside this
// module. Recording stores program counters alone; they are resolved when a stack is shown.
package callsite

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

const module = "github.com/ashlar-go/ashlar"

// programs are the folders of this module that hold programs. They use Ashlar as other programs do.
var programs = []string{"/bench/", "/cmd/", "/examples/"}

// Own reports whether a function, as package runtime names it, is Ashlar's own. Functions in tests and in this module's
// programs are not.
func Own(function, file string) bool {
	within, ok := strings.CutPrefix(function, module)
	if !ok || within == "" || within[0] != '/' && within[0] != '.' || strings.HasSuffix(file, "_test.go") {
		return false
	}
	for _, folder := range programs {
		if strings.HasPrefix(within, folder) {
			return false
		}
	}
	last := within[strings.LastIndexByte(within, '/')+1:]
	name, _, _ := strings.Cut(last, ".")
	return !strings.HasSuffix(name, "_test")
}

// Frames resolves program counters that runtime.Callers returned, innermost first, from the first function on that is
// not Ashlar's own. It returns all frames if every function is Ashlar's.
func Frames(pcs []uintptr) []runtime.Frame {
	all, own := resolve(pcs)
	if own < len(all) {
		return all[own:]
	}
	return all
}

// resolve returns all frames, and how many of Ashlar's own come before the first other one.
func resolve(pcs []uintptr) (all []runtime.Frame, own int) {
	if len(pcs) == 0 {
		return nil, 0
	}
	frames := runtime.CallersFrames(pcs)
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.PC == 0 && f.Function == "" {
			continue
		}
		if own == len(all) && Own(f.Function, f.File) {
			own++
		}
		all = append(all, f)
	}
	return all, own
}

// A Site is a place in a program with the innermost calls that led there. The zero Site is unknown. Sites compare with
// ==.
type Site struct {
	pcs [8]uintptr
	n   int
}

// Here returns the site of its caller.
func Here() *Site {
	s := new(Site)
	s.n = runtime.Callers(2, s.pcs[:])
	return s
}

// Record makes s the site of the function that calls Record or, if skip is not 0, of the function that many calls
// above. It keeps up to depth calls, at most 8: with 4 it takes a third of the time.
func (s *Site) Record(skip, depth int) { s.n = runtime.Callers(skip+2, s.pcs[:min(depth, len(s.pcs))]) }

// Frames returns the calls from the first one outside Ashlar on, innermost first: none if there is none, or s is nil.
func (s *Site) Frames() []runtime.Frame {
	if s == nil {
		return nil
	}
	all, own := resolve(s.pcs[:s.n])
	if own == len(all) {
		return nil
	}
	return all[own:]
}

// String returns the innermost place outside Ashlar, such as "main.go:12".
func (s *Site) String() string {
	for _, f := range s.Frames() {
		return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
	}
	return "an unknown place"
}
