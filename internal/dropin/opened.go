package dropin

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// opened are the handles of other processes that are open in this one. A handle that is opened several times is mapped
// once.
type opened struct {
	mu        sync.Mutex
	byHandle  map[openKey]*openHandle
	byAddress map[driver.Pointer]*openHandle
	unclosed  []func() error // memory that the device failed to give back
}

type openKey struct {
	device int // ordinal
	memory string
}

type openHandle struct {
	key   openKey
	users int           // guarded by opened.mu
	done  chan struct{} // closed once what follows is set
	at    driver.Pointer
	close func() error
	err   error
}

// join adds a user of a handle. The first one must open it.
func (x *opened) join(key openKey) (h *openHandle, first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h = x.byHandle[key]
	if h == nil {
		h, first = &openHandle{key: key, done: make(chan struct{}), err: errOpening}, true
		if x.byHandle == nil {
			x.byHandle, x.byAddress = map[openKey]*openHandle{}, map[driver.Pointer]*openHandle{}
		}
		x.byHandle[key] = h
	}
	h.users++
	return h, first
}

var errOpening = errors.New("ashlar: the handle could not be opened")

// open opens the memory of a handle, for the first user and those that wait.
func (x *opened) open(h *openHandle, dev driver.Device) {
	defer x.finish(h) // also after a panic
	h.at, h.close, h.err = raw.OpenIPCHandle(dev, raw.Handle{Memory: []byte(h.key.memory)})
	if errors.Is(h.err, driver.ErrInvalid) {
		h.err = fmt.Errorf("%w: %w", ErrInvalid, h.err)
	}
}

// finish ends the wait for a handle. Memory that was opened while all of it was closed is given back with the rest.
func (x *opened) finish(h *openHandle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case h.err != nil:
		delete(x.byHandle, h.key)
	case x.byHandle[h.key] != h:
		x.unclosed = append(x.unclosed, h.close)
		h.err = errOpening
	default:
		x.byAddress[h.at] = h
	}
	close(h.done)
}

// leave removes a user of the memory opened at an address. After the last one, it returns what gives the memory back.
func (x *opened) leave(at driver.Pointer) (giveBack func() error, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.byAddress[at]
	if h == nil {
		return nil, false
	}
	if h.users--; h.users > 0 {
		return nil, true
	}
	delete(x.byHandle, h.key)
	delete(x.byAddress, at)
	return h.close, true
}

// giveBack gives memory back, and what earlier calls could not give back. If it fails, the next call tries again.
func (x *opened) giveBack(last func() error) error {
	x.mu.Lock()
	all := x.unclosed
	x.unclosed = nil
	x.mu.Unlock()
	if last != nil {
		all = append(all, last)
	}
	var errs []error
	for _, giveBack := range all {
		if err := giveBack(); err != nil {
			errs = append(errs, err)
			x.mu.Lock()
			x.unclosed = append(x.unclosed, giveBack)
			x.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// close gives all memory back.
func (x *opened) close() error {
	x.mu.Lock()
	for _, h := range x.byAddress {
		x.unclosed = append(x.unclosed, h.close)
	}
	x.byHandle, x.byAddress = nil, nil
	x.mu.Unlock()
	return x.giveBack(nil)
}

// OpenShared opens a handle of another process's Share on a device, and returns the address of its memory here. A
// handle that is open already has the same address. Each OpenShared needs one CloseShared. The memory stays valid if
// the other process dies. The error matches ErrUnknown if Share did not make the handle, and ErrInvalid if it is wrong,
// its block was freed, or the other process is gone, another user's or this one.
func (p *Process) OpenShared(ordinal int, handle []byte) (at driver.Pointer, err error) {
	memory, ok := memoryOf(handle)
	if !ok {
		return 0, fmt.Errorf("%w: not a handle of Ashlar's", ErrUnknown)
	}
	g, err := p.gpu(ordinal)
	if err != nil {
		return 0, err
	}
	h, first := p.opened.join(openKey{ordinal, string(memory)})
	if first {
		p.opened.open(h, g.dev)
	}
	<-h.done
	return h.at, h.err
}

// CloseShared undoes one OpenShared. After the last one, it gives the memory back, after the work queued on the device.
// The error matches ErrUnknown if no memory was opened at the address.
func (p *Process) CloseShared(at driver.Pointer) error {
	giveBack, ok := p.opened.leave(at)
	if !ok {
		return ErrUnknown
	}
	return p.opened.giveBack(giveBack)
}

// SharedInfo returns how many blocks have handles for other processes, and how many handles of others are open.
func (p *Process) SharedInfo() (exported, open int) {
	p.opened.mu.Lock()
	defer p.opened.mu.Unlock()
	return int(p.exports.any.Load()), len(p.opened.byAddress) + len(p.opened.unclosed)
}
