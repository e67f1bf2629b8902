package tensor

import (
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/ashlar-go/ashlar/internal/callsite"
)

// A site is a call stack. It is cheap to record and is resolved when it is printed.
type site struct {
	pcs [8]uintptr
	n   int
}

// callSite returns the caller's call stack.
func callSite() *site {
	s := new(site)
	s.n = runtime.Callers(2, s.pcs[:])
	return s
}

// shortCallSite returns the last four calls of the caller's caller, at a third of the cost of callSite.
func shortCallSite() *site {
	s := new(site)
	s.n = runtime.Callers(3, s.pcs[:4])
	return s
}

// frames returns the calls, innermost first, from the first one outside Ashlar on.
func (s *site) frames() []runtime.Frame {
	if s == nil || s.n == 0 {
		return nil
	}
	var out []runtime.Frame
	frames := runtime.CallersFrames(s.pcs[:s.n])
	for {
		f, more := frames.Next()
		if f.PC != 0 && (len(out) > 0 || !callsite.Own(f.Function, f.File)) {
			out = append(out, f)
		}
		if !more {
			return out
		}
	}
}

// String returns the innermost call outside Ashlar as file:line.
func (s *site) String() string {
	for _, f := range s.frames() {
		return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
	}
	return "an unknown place"
}
