package engine

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/internal/goroutine"
)

// A guard lets one goroutine at a time into a session. It is entered by each call, and by each scope until it ends; the
// goroutine that entered first owns it until it has left as often.
type guard struct {
	mu    sync.Mutex
	owner uintptr // while depth > 0
	depth int
	call  string // what entered first
	site  site   // and where
	shut  bool   // nobody enters any more but the owner, while there is one
	empty chan struct{}
}

// enter lets the calling goroutine in. It panics if another is inside, and returns ErrClosed if the guard is shut.
func (g *guard) enter(call string) error {
	if err := g.lock(call); err != nil {
		return err
	}
	defer g.mu.Unlock()
	if g.depth == 0 {
		g.owner, g.call = goroutine.ID(), call
		g.site.take()
	}
	g.depth++
	return nil
}

// lock is enter for calls that are over at once: until unlock, with the lock held. It notes no place, which would take longer
// than all else.
func (g *guard) lock(call string) error {
	me := goroutine.ID()
	g.mu.Lock()
	switch {
	case g.depth > 0 && g.owner != me:
		defer g.mu.Unlock()
		panic(fmt.Sprintf("engine: session used from two goroutines at once: %s at %v, while another is inside %s at %v",
			call, here(), g.call, &g.site))
	case g.depth == 0 && g.shut:
		g.mu.Unlock()
		return ErrClosed
	}
	return nil
}

func (g *guard) unlock() { g.mu.Unlock() }

// blame names the place that the owner is there for, where its own calls do not lead.
func (g *guard) blame(from *site) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.site = *from
}

// leave ends one enter.
func (g *guard) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.depth--
	if g.depth == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// inside reports whether the calling goroutine has entered.
func (g *guard) inside() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.depth > 0 && g.owner == goroutine.ID()
}

// text is what the owner entered first, and where.
func (g *guard) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%s at %v", g.call, &g.site)
}

// mustBeOutside panics if a call was entered more often than it accounts for: if it is inside a scope.
func (g *guard) mustBeOutside(call string, own int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.depth > own {
		panic(fmt.Sprintf("engine: %s at %v inside %s at %v", call, here(), g.call, &g.site))
	}
}

// close shuts the guard, and returns what is closed when nobody is inside; nil if nobody is.
func (g *guard) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	if g.depth > 0 && g.empty == nil {
		g.empty = make(chan struct{})
	}
	return g.empty
}

// A site is a place in a program: the calls that led there, resolved when it is shown.
type site struct {
	pcs [8]uintptr
	n   int
}

// take notes the caller's caller.
func (s *site) take() { s.n = runtime.Callers(3, s.pcs[:]) }

func here() *site {
	s := new(site)
	s.take()
	return s
}

// String is the innermost call outside of Ashlar, "main.go:12".
func (s *site) String() string {
	frames := runtime.CallersFrames(s.pcs[:s.n])
	for {
		f, more := frames.Next()
		if f.PC != 0 && !callsite.Own(f.Function, f.File) {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
