package tensor

import (
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/ashlar-go/ashlar/internal/callsite"
)

// A site is a place in a program: the calls that led there. It is cheap to take and is resolved when it is shown.
type site struct {
	pcs [8]uintptr
	n   int
}

// here returns the caller's site.
func here() *site {
	s := new(site)
	s.n = runtime.Callers(2, s.pcs[:])
	return s
}

// nearby is the site of the caller's caller, a few calls deep: a third of what here costs.
func nearby() *site {
	s := new(site)
	s.n = runtime.Callers(3, s.pcs[:4])
	return s
}

// frames returns the calls, innermost first, without those inside of Ashlar before the first that is not.
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

// String is the innermost call outside of Ashlar: file:line.
func (s *site) String() string {
	for _, f := range s.frames() {
		return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
	}
	return "an unknown place"
}
