package engine

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/internal/goroutine"
)

// A guard lets one goroutine at a time into a session. Each call enters it, and each scope does until it ends. The
// goroutine that enters first owns the guard until it has left as often as it entered.
type guard struct {
	mu     sync.Mutex
	owner  uintptr // while depth > 0
	depth  int
	call   string // the call that entered first
	site   site   // the caller of that call
	closed bool   // only an owner may enter
	empty  chan struct{}
}

// enter lets the calling goroutine in. It panics if another is inside, and returns ErrClosed if the guard is closed.
func (g *guard) enter(call string) error {
	if err := g.lock(call); err != nil {
		return err
	}
	defer g.mu.Unlock()
	if g.depth == 0 {
		g.owner, g.call = goroutine.ID(), call
		g.site.Record(1, 8)
	}
	g.depth++
	return nil
}

// lock is enter for short calls, which hold the lock until unlock. It records no call site, since that would take
// longer than the call.
func (g *guard) lock(call string) error {
	me := goroutine.ID()
	g.mu.Lock()
	switch {
	case g.depth > 0 && g.owner != me:
		defer g.mu.Unlock()
		panic(fmt.Sprintf("engine: session used from two goroutines at once: %s at %v, while another is inside %s at %v",
			call, callsite.Here(), g.call, &g.site))
	case g.depth == 0 && g.closed:
		g.mu.Unlock()
		return ErrClosed
	}
	return nil
}

func (g *guard) unlock() { g.mu.Unlock() }

// setSite sets the call site that messages name, where the owner's stack does not have it.
func (g *guard) setSite(from *site) {
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

// text names the call that the owner entered first, and its site.
func (g *guard) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%s at %v", g.call, &g.site)
}

// mustBeOutside panics inside a scope: if the guard was entered more often than own.
func (g *guard) mustBeOutside(call string, own int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.depth > own {
		panic(fmt.Sprintf("engine: %s at %v inside %s at %v", call, callsite.Here(), g.call, &g.site))
	}
}

// close closes the guard. It returns a channel that is closed when the owner has left; nil if there is no owner.
func (g *guard) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.depth > 0 && g.empty == nil {
		g.empty = make(chan struct{})
	}
	return g.empty
}

type site = callsite.Site
