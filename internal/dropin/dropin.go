// Package dropin is the Go side of cmd/libashlar. It allocates GPU memory for programs that are not written in Go, such
// as PyTorch. They name devices by number, streams by handle and blocks by address.
//
// A Process is safe for concurrent use. Sizes are bytes. Bugs of the caller are reported as errors. A panic is a bug of
// Ashlar; cmd/libashlar turns it into an error, since it would end the foreign program, and uses the Process no more:
// its locks may be locked.
package dropin

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// # Structure
//
//	Process  the devices and the program's settings (settings.go)
//	gpu      an open device, with its streams by handle (gpu.go)
//	mem/raw  the live blocks of all devices by address, and each device's allocator
//	pins     blocks that are not freed yet because they are pinned (pin.go)
//	foreign  blocks used by streams that their owner may destroy (external.go)
//	tags     memory that is paused by itself: a pool on each device (tags.go, pause.go)
//	states   checkpoints of private pools (pool.go)
//	exports  blocks that other processes may open (share.go), by handles that PyTorch reads too (handle.go)
//	opened   blocks of other processes (opened.go)

// ErrInvalid is matched by the errors for wrong arguments and settings.
var ErrInvalid = errors.New("ashlar: invalid argument")

// ErrUnknown is matched by the error for an address outside every live block.
var ErrUnknown = errors.New("ashlar: the address is in no live block")

// A Process manages the memory of a process's GPUs.
type Process struct {
	open     func(ordinal int) (driver.Device, error)
	settings settings
	gpus     []gpu // by ordinal

	mu       sync.Mutex // guards observer
	observer func(Event)

	pins    pins
	foreign externalUses
	tags    tagNames
	pausing sync.Mutex // held by Pause and Resume, and for gpu.host
	states  states     // checkpoints of pools

	saver     atomic.Pointer[gpu]    // the device whose plans are saved: the first that was used
	planError atomic.Pointer[string] // why that failed last
	exports   exports
	opened    opened
}

// New returns a Process with the given number of devices and the settings in text (see settings). It calls open for
// each device at its first use. The error matches ErrInvalid and names the wrong setting.
func New(devices int, text string, open func(ordinal int) (driver.Device, error)) (*Process, error) {
	s, err := parseSettings(text)
	if err != nil {
		return nil, err
	}
	if devices < 0 {
		return nil, fmt.Errorf("%w: %d devices", ErrInvalid, devices)
	}
	if s.plan != "" {
		if err := s.readPlan(); err != nil {
			return nil, err
		}
	}
	if devices > 1 {
		s.prepareForPeers()
	}
	p := &Process{open: open, settings: s, gpus: make([]gpu, devices)}
	for i := range p.gpus {
		p.gpus[i].ordinal, p.gpus[i].process = i, p
		p.gpus[i].limit.Store(s.limit)
	}
	return p, nil
}

// Alloc allocates at least size bytes of a device's memory and returns their address. Work queued later on the stream
// with this handle may use them. For size 0, Alloc returns 0. The error matches mem.ErrNoMemory if there is no room.
func (p *Process) Alloc(ordinal int, stream uintptr, size uint64) (at driver.Pointer, err error) {
	g, s, err := p.place(ordinal, stream, size)
	if s == nil {
		return 0, err
	}
	at, err = raw.AllocOn(g.dev, s, int64(size))
	if errors.Is(err, mem.ErrNoMemory) && g.freeCachedTags() {
		at, err = raw.AllocOn(g.dev, s, int64(size))
	}
	return at, invalidIfPaused(err)
}

// place returns the device and the stream of a request. The stream is nil, without an error, if the size is 0.
func (p *Process) place(ordinal int, stream uintptr, size uint64) (*gpu, driver.Stream, error) {
	if size == 0 {
		return nil, nil, nil
	}
	if size > math.MaxInt64 {
		return nil, nil, &mem.OutOfMemory{Requested: math.MaxInt64, TooLarge: true}
	}
	g, err := p.gpu(ordinal)
	if err != nil {
		return nil, nil, err
	}
	s, err := g.stream(stream)
	return g, s, err
}

// Free frees the block that starts at an address. Work already queued on the block's streams may still use it. The
// error matches ErrUnknown if no live block starts there.
func (p *Process) Free(at driver.Pointer) (err error) {
	if at == 0 || p.pins.keep(at) {
		return nil
	}
	p.exports.end(p, at)
	used := p.foreign.take(p, at)
	if !raw.CurrentBlocks().TryFree(at, used...) {
		return ErrUnknown
	}
	return nil
}

// RecordStream notes that work on a stream of the block's device uses the live block that contains an address. If the
// stream is external, its owner may destroy it once the block is freed.
func (p *Process) RecordStream(at driver.Pointer, stream uintptr, external bool) (err error) {
	if at == 0 {
		return nil
	}
	l, g, err := p.holding(at)
	if err != nil {
		return err
	}
	if external {
		return p.foreign.add(g, l.Ptr, stream)
	}
	s, err := g.stream(stream) // now, so that a wrong handle is an error here and not a wait that the free leaves out
	if err != nil {
		return err
	}
	raw.RecordStream(l.Ptr, s)
	return nil
}

// A Block is a live block.
type Block struct {
	Ptr    driver.Pointer
	Size   int64
	Device int // ordinal
	Pins   int
}

// Block describes the live block that contains an address. The error matches ErrUnknown if there is none.
func (p *Process) Block(at driver.Pointer) (b Block, err error) {
	l, g, err := p.holding(at)
	if err != nil {
		return Block{}, err
	}
	return Block{l.Ptr, l.Size, g.ordinal, p.pins.count(l.Ptr)}, nil
}

// Pin keeps the block that contains an address allocated and at that address, even after its Free. Each Pin must be
// undone by one Unpin.
func (p *Process) Pin(at driver.Pointer) (err error) {
	l, _, err := p.holding(at)
	if err == nil {
		p.pins.add(l.Ptr)
	}
	return err
}

// Unpin undoes one Pin. If that was the last one and Free was called, Unpin frees the block.
func (p *Process) Unpin(at driver.Pointer) (err error) {
	l, _, err := p.holding(at)
	if err != nil {
		return err
	}
	freed, ok := p.pins.remove(l.Ptr)
	if !ok {
		return fmt.Errorf("%w: the block at %#x is not pinned", ErrInvalid, uint64(l.Ptr))
	}
	if freed {
		return p.Free(l.Ptr)
	}
	return nil
}

// EnablePeer lets work on one device use the memory of another, whenever that is allocated.
func (p *Process) EnablePeer(ordinal, peer int) (err error) {
	g, err := p.gpu(ordinal)
	if err != nil {
		return err
	}
	o, err := p.gpu(peer)
	if err != nil {
		return err
	}
	return raw.EnablePeer(g.dev, o.dev)
}

// BeginCapture announces that the program is about to capture work of a device, on any of its streams and threads.
// Until EndCapture, Ashlar does not use the program's streams of that device, except its default stream: libcuda does
// not allow two threads to use a stream that captures. Requests then leave memory that those streams used alone. The
// calls nest.
func (p *Process) BeginCapture(ordinal int) error {
	return p.capture(ordinal, captureAnnouncer.OthersBegin)
}

// EndCapture undoes one BeginCapture.
func (p *Process) EndCapture(ordinal int) error {
	return p.capture(ordinal, captureAnnouncer.OthersEnd)
}

// A captureAnnouncer is the driver.Graphs of a device on which other code can capture: that of driver/cuda.
type captureAnnouncer interface {
	OthersBegin()
	OthersEnd()
}

func (p *Process) capture(ordinal int, announce func(captureAnnouncer)) (err error) {
	g, err := p.gpu(ordinal)
	if err != nil {
		return err
	}
	if a, ok := g.dev.Graphs().(captureAnnouncer); ok {
		announce(a)
	}
	return nil
}

// Close frees all memory and closes the devices. The Process and its blocks must not be used afterwards.
func (p *Process) Close() error {
	errs := []error{p.opened.close()}
	for i := range p.gpus {
		errs = append(errs, p.gpus[i].close())
	}
	return errors.Join(errs...)
}

// gpu returns a device, and opens it if necessary.
func (p *Process) gpu(ordinal int) (*gpu, error) {
	if uint(ordinal) >= uint(len(p.gpus)) {
		return nil, fmt.Errorf("%w: device %d of %d", ErrInvalid, ordinal, len(p.gpus))
	}
	g := &p.gpus[ordinal]
	if !g.ready.Load() {
		if err := g.start(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// holding finds the live block that contains an address, and its device.
func (p *Process) holding(at driver.Pointer) (raw.LiveBlock, *gpu, error) {
	l, ok := raw.CurrentBlocks().Holding(at)
	if !ok {
		return l, nil, ErrUnknown
	}
	for i := range p.gpus {
		if g := &p.gpus[i]; g.ready.Load() && g.dev == l.Device {
			return l, g, nil
		}
	}
	return l, nil, ErrUnknown
}
