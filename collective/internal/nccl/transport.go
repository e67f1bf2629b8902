package nccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
)

// A transport is one rank's communicator.
type transport struct {
	lib        *library
	kernels    driver.Kernels
	control    driver.Stream // for calls that queue nothing
	capability int           // driver.Info.Compute
	rank, size int
	cells      *cells

	mu      sync.Mutex
	handle  uintptr // an ncclComm_t; 0 once it is over
	closing bool    // Close was called
	over    error   // why the handle is gone: *aborted or errClosed
	failed  error   // the first error of NCCL

	gone chan struct{} // closed when NCCL has destroyed the communicator
}

// cells are the variables that NCCL writes. They are on the heap, so they do not move.
type cells struct {
	handle uintptr // NCCL writes it again at the end of the initialization
	state  result  // with mu held
}

// The number of polls without pause, and the pause afterwards. A poll takes about 0.2 us, and NCCL 2.28 queues a group
// on a stream in about 70 us (BenchmarkGPUQueue, two H200s).
const (
	questions = 1000
	pause     = 500 * time.Microsecond
)

// connect implements New with a library.
func (l *library) connect(ctx context.Context, dev driver.Device, id ID, rank, size int) (*transport, error) {
	if size < 1 || rank < 0 || rank >= size {
		panic(fmt.Sprintf("nccl: rank %d of %d", rank, size))
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("nccl: rank %d of %d: %w", rank, size, context.Cause(ctx))
	}
	info := dev.Info()
	kernels := dev.Kernels()
	if kernels == nil || info.Driver != "cuda" {
		detail := fmt.Sprintf("NCCL is for GPUs of NVIDIA's, not for %s (driver %s)", info.Name, info.Driver)
		return nil, &driver.Error{Call: "nccl", Code: driver.ErrUnsupported, Detail: detail}
	}
	control, err := dev.NewStream(driver.StreamOptions{})
	if err != nil {
		return nil, fmt.Errorf("nccl: make a stream: %w", err)
	}
	t := &transport{
		lib: l, kernels: kernels, control: control, capability: info.Compute, rank: rank, size: size,
		cells: new(cells), gone: make(chan struct{}),
	}
	err = t.direct(commInitRankConfig, func() error {
		r := l.initRank(&t.cells.handle, size, &id, rank, nonBlocking())
		t.handle = t.cells.handle
		return l.check(commInitRankConfig, r)
	})
	if err == nil {
		err = t.await(commInitRankConfig, ctx.Done())
	}
	if err == errStopped {
		err = fmt.Errorf("nccl: rank %d of %d waits for the others: %w", rank, size, context.Cause(ctx))
	}
	if err != nil {
		t.Abort(err)
		return nil, err
	}
	return t, nil
}

// Handle returns the ncclComm_t, or the error for which it is gone.
func (t *transport) Handle() (uintptr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refusal(); err != nil {
		return 0, err
	}
	return t.handle, nil
}

// direct makes a call of NCCL that queues no work, with the device current on the thread.
func (t *transport) direct(s symbol, call func() error) error {
	return t.kernels.Launch(t.control, driver.Kernel{Name: symbols[s], Call: func(uintptr) error { return call() }})
}

// Queue issues a group. See the package's comment for how it waits.
func (t *transport) Queue(s driver.Stream, calls ...comm.Call) error {
	g, err := t.plan(calls)
	if err != nil {
		return err
	}
	if len(g.pieces) == 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.refusal()
	}
	going := false
	err = t.kernels.Launch(s, driver.Kernel{
		Name: symbols[g.pieces[0].symbol], Reads: g.reads, Writes: g.writes,
		Call: func(stream uintptr) (err error) {
			going, err = t.issue(g, stream)
			return err
		},
	})
	if going { // also for a group in which a call failed
		if e := t.await(groupEnd, nil); err == nil {
			err = e
		}
	}
	if err != nil || !going {
		return err
	}
	return t.kernels.Launch(s, driver.Kernel{Name: symbols[groupEnd], Call: func(uintptr) error { return nil }})
}

// refusal returns the reason why the transport accepts no work, or nil. mu is held.
func (t *transport) refusal() error {
	if t.over == nil && t.closing {
		return errClosed
	}
	return t.over
}

// issue makes the calls of a group, and reports whether they are still in progress. It runs inside Kernel.Call: the
// thread is locked, the device current and the stream's lock held.
func (t *transport) issue(g *group, stream uintptr) (going bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refusal(); err != nil {
		return false, err
	}
	if err := t.lib.check(groupStart, t.lib.call(groupStart)); err != nil {
		return false, t.setError(err)
	}
	for i := range g.pieces {
		p := &g.pieces[i]
		p.n += copy(p.args[p.n:], []uintptr{t.handle, stream})
		if err = t.lib.check(p.symbol, t.lib.call(p.symbol, p.args[:p.n]...)); err != nil {
			break
		}
	}
	r := t.lib.call(groupEnd) // always: the thread is in the group until then
	if err == nil {
		err = t.lib.check(groupEnd, r)
	}
	return r == inProgress, t.setError(err)
}

// setError keeps the first error. mu is held.
func (t *transport) setError(err error) error {
	if t.failed == nil {
		t.failed = err
	}
	return err
}

// errStopped is the error of await if stop was closed.
var errStopped = errors.New("nccl: stopped")

// await waits until a call of s that returned "in progress" is done, until the transport is over, or until stop is
// closed. The error is that of the call or of the transport.
func (t *transport) await(s symbol, stop <-chan struct{}) error {
	for range questions {
		if done, err := t.ask(s); done {
			return err
		}
		runtime.Gosched()
	}
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		if done, err := t.ask(s); done {
			return err
		}
		select {
		case <-ticker.C:
		case <-stop:
			return errStopped
		}
	}
}

// ask reports whether the last call, of s, is done, and its error.
func (t *transport) ask(s symbol) (done bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return true, t.over
	}
	r := t.lib.call(commGetAsyncError, t.handle, uintptr(unsafe.Pointer(&t.cells.state)))
	if err := t.lib.check(commGetAsyncError, r); err != nil {
		return true, t.setError(err)
	}
	switch t.cells.state {
	case success:
		return true, nil
	case inProgress:
		return false, nil
	}
	return true, t.setError(t.lib.failure(s, t.cells.state))
}
