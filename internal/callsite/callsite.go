// Package callsite tells Ashlar's functions from those of programs that use it, so that stacks can begin where a program
// called Ashlar.
package callsite

import (
	"runtime"
	"strings"
)

const module = "github.com/ashlar-go/ashlar"

// programs are the folders of this module that hold programs, which use Ashlar as others do.
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

// Callers returns the frames from the first on that is not Ashlar's own, innermost first; or all of them, if every one is.
func Callers(frames []runtime.Frame) []runtime.Frame {
	for i := range frames {
		if !Own(frames[i].Function, frames[i].File) {
			return frames[i:]
		}
	}
	return frames
}
