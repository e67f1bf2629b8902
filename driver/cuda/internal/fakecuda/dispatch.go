//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"reflect"
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// A call is one call of a function by a thread, under the machine's lock. The functions are its methods.
type call struct {
	*Machine
	tid    int
	thread *thread
	ctx    *primary // current on the thread; not nil if the function needs one
	way    *peerWay // of a copy between devices; nil if the host stages it
}

// A need is the condition under which a function may be called. A function needs a current context if CUDA's
// documentation lists CUDA_ERROR_INVALID_CONTEXT for it.
type need int

const (
	nothing need = iota
	initialised
	current // a context is current
)

// A symbol is one function of the library: its exported name, and a method of call.
type symbol struct {
	name  string
	needs need
	solo  bool // not allowed while streams capture (see guarded)
	fn    any
}

// addresses creates the C functions, once per process, since they cannot be freed.
var addresses = sync.OnceValue(func() map[string]uintptr {
	table := map[string]uintptr{}
	for _, s := range symbols() {
		table[s.name] = purego.NewCallback(s.function())
	}
	return table
})

// function returns the method as a function without a receiver. It acts on the open machine.
func (s symbol) function() any {
	fn := reflect.ValueOf(s.fn)
	var in []reflect.Type
	for i := 1; i < fn.Type().NumIn(); i++ {
		in = append(in, fn.Type().In(i))
	}
	out := []reflect.Type{reflect.TypeFor[Result]()}
	return reflect.MakeFunc(reflect.FuncOf(in, out, false), func(args []reflect.Value) []reflect.Value {
		return []reflect.Value{reflect.ValueOf(s.call(fn, args))}
	}).Interface()
}

func (s symbol) call(fn reflect.Value, args []reflect.Value) (r Result) {
	m := installed.Load()
	if m == nil {
		return Deinitialized
	}
	if m.opts.Harsh {
		moveStack(64)
		runtime.GC()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	tid := unix.Gettid()
	t := m.threads[tid]
	if t == nil {
		t = &thread{contexts: []*primary{nil}}
		m.threads[tid] = t
	}
	c := &call{Machine: m, tid: tid, thread: t, ctx: t.contexts[len(t.contexts)-1]}
	defer func() { m.note(s.name, tid, args, r) }()
	if r := c.check(s); r != Success {
		return r
	}
	return fn.Call(append([]reflect.Value{reflect.ValueOf(c)}, args...))[0].Interface().(Result)
}

// check returns an error if the function may not be called.
func (c *call) check(s symbol) Result {
	if r, ok := c.fault(s.name); ok {
		return r
	}
	switch {
	case c.closed:
		return Deinitialized
	case s.needs >= initialised && !c.inited:
		return NotInitialized
	case s.needs < current:
	case c.ctx == nil:
		return InvalidContext
	case !c.ctx.live:
		return ContextIsDestroyed
	case c.ctx.broken != Success:
		return c.ctx.broken
	}
	if s.solo {
		return c.guarded()
	}
	return Success
}

// moveStack makes the caller's stack grow, and so move. It reveals a caller that passed the address of a variable on
// its stack as a number.
//
//go:noinline
func moveStack(depth int) byte {
	var frame [1024]byte
	frame[depth] = byte(depth)
	if depth == 0 {
		return frame[0]
	}
	return moveStack(depth-1) + frame[depth]
}
