//go:build linux && (amd64 || arm64) && !nocuda

// Package fakecuda is a libcuda of Go functions, for tests of code that calls CUDA's driver without a GPU.
//
// Lookup returns the C addresses of the functions by their exported names. They are made once in a process and act on
// the open Machine. A machine is at least as strict as the real driver: where CUDA leaves behaviour undefined it fails,
// and work that may run late runs as late as possible.
//
// Structure. The address space is one reserved range of the process. A sorted list of regions has the blocks
// (cuMemAlloc) and reservations with their mappings (cuMemMap). Physical memory is a memfd for each device, or a
// separate one if another process may open it, mapped where the driver would map it. So copies are copies of bytes, and
// a page can be visible at several addresses. A stream is a queue of work items, which refer to earlier items; events
// refer to work items.
//
// The Pace determines when work runs: by default only when a call waits for it, and a query runs one item after it has
// returned "not ready". Hold stops a stream until Release. The clock of the events is the sum of the costs of work.
//
// A thread's current context and its captures are stored by its kernel thread ID, so a caller that ignores that
// goroutines move between threads gets errors. Ranges are checked against the lists before they are accessed. So
// callers cannot crash the process, except with an invalid address of host memory.
//
// Locks: one, Machine.mu. Every call holds it, except while it waits for work. Work, including kernels, runs under it.
//
// Not supported: textures, managed memory, green contexts, host functions, cubins, contexts other than primary ones,
// costs of calls, and detection of races between streams (driver/sim does that).
package fakecuda

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options describe a Machine. The zero value is a machine with two linked devices of 256 MiB.
type Options struct {
	Devices     int               // how many; 0 means 2
	Memory      int64             // bytes of each; 0 means 256 MiB
	Addresses   int64             // bytes of the address space; 0 means 64 GiB
	Granularity int64             // of virtual memory, in bytes, at least a page of the host; 0 means 2 MiB
	Version     int32             // result of cuDriverGetVersion; 0 means 13000
	Name        string            // of every device; "" means "Fake H200"
	Unlinked    bool              // devices cannot use each other's memory
	NoVirtual   bool              // no virtual memory
	NoFD        bool              // pages cannot be exported as files
	Attributes  map[int32]int32   // additional or changed device attributes
	Missing     []string          // symbols that Lookup does not find
	Init        Result            // result of cuInit
	Pace        Pace              // when work runs
	Held        bool              // new streams are held: work waits for Release or Step
	Harsh       bool              // every call collects garbage and moves the caller's stack first
	Kernels     map[string]Kernel // as if passed to Machine.Kernel
	Called      func(Call)        // receives each call when it returns, under the machine's lock; may be nil
}

// A Pace determines when the work of streams that are not held runs.
type Pace int

const (
	// Late runs work once a call waits for it, and one piece after each query that returns "not ready".
	Late Pace = iota
	// AtOnce runs work when it is queued, like a device that is faster than its host.
	AtOnce
	// Background runs work on a goroutine of its own, at any time.
	Background
)

// A Machine is a host with devices, as seen through libcuda. It is safe for concurrent use.
type Machine struct {
	opts    Options
	missing map[string]bool
	page    int64 // bytes, of the host

	mu        sync.Mutex
	changed   *sync.Cond // work was done, a stream released, the machine closed
	closed    bool
	inited    bool
	devices   []*device
	threads   map[int]*thread
	handles   map[uint64]any // objects by handle
	base, end uint64
	space     []*region         // sorted by address
	host      []*pinned         // sorted by address
	shared    map[ipcKey]*pages // memory with separate files, which other processes may open
	clock     int64             // ns
	kernels   map[string]Kernel
	captures  []*capture

	observed
}

// A thread is CUDA's state of a thread of the operating system.
type thread struct {
	contexts []*primary // the last is current; nil stands for none
	mode     uint32     // capture mode: the calls that are forbidden while other threads capture
}

// The machine that calls act on.
var installed atomic.Pointer[Machine]

// Handles are unique in the process, so a stale handle is never mistaken for another.
var lastHandle atomic.Uint64

// New makes a machine, on which all calls act until Close. New panics if another machine is open.
func New(opts Options) *Machine {
	m := &Machine{
		opts:    opts.withDefaults(),
		missing: map[string]bool{},
		page:    int64(os.Getpagesize()),
		threads: map[int]*thread{},
		handles: map[uint64]any{},
		shared:  map[ipcKey]*pages{},
		kernels: map[string]Kernel{},
	}
	m.changed = sync.NewCond(&m.mu)
	m.calls = map[string]int{}
	for _, name := range opts.Missing {
		m.missing[name] = true
	}
	for name, k := range opts.Kernels {
		m.kernels[name] = k
	}
	if m.opts.Granularity%m.page != 0 {
		panic(fmt.Sprintf("fakecuda: granularity %d is not a multiple of the host's pages of %d", m.opts.Granularity,
			m.page))
	}
	if !installed.CompareAndSwap(nil, m) {
		panic("fakecuda: another machine is open")
	}
	m.reserveSpace()
	for i := range m.opts.Devices {
		m.devices = append(m.devices, m.newDevice(i))
	}
	if m.opts.Pace == Background {
		go m.work()
	}
	return m
}

func (o Options) withDefaults() Options {
	o.Devices = cmp.Or(o.Devices, 2)
	o.Memory = cmp.Or(o.Memory, 256<<20)
	o.Addresses = cmp.Or(o.Addresses, 64<<30)
	o.Granularity = cmp.Or(o.Granularity, 2<<20)
	o.Version = cmp.Or(o.Version, 13000)
	o.Name = cmp.Or(o.Name, "Fake H200")
	return o
}

// Close ends the machine with its remaining resources (see Leaks). Waiting calls fail. Addresses of Lookup stay valid
// for the next machine.
func (m *Machine) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	m.changed.Broadcast()
	for _, p := range m.shared {
		must(unix.Close(p.fd))
	}
	for _, x := range m.handles {
		if e, ok := x.(*event); ok && e.shared != nil {
			e.shared.destroy()
		}
	}
	for _, r := range m.space {
		if r.block != nil && r.block.pages.own {
			must(unix.Close(r.block.pages.fd))
		}
	}
	for _, d := range m.devices {
		must(unix.Close(d.fd))
	}
	for _, h := range m.host {
		if !h.registered {
			must(unix.MunmapPtr(pointer(h.start), uintptr(h.mapped)))
		}
	}
	must(unix.MunmapPtr(pointer(m.base), uintptr(m.end-m.base)))
	installed.CompareAndSwap(m, nil)
}

// Lookup returns the C address of a function by its exported name, or an error if the machine has none.
func (m *Machine) Lookup(name string) (uintptr, error) {
	address, ok := addresses()[name]
	if !ok || m.missing[name] {
		return 0, fmt.Errorf("fakecuda: undefined symbol: %s", name)
	}
	return address, nil
}

// newHandle assigns a handle to x.
func (m *Machine) newHandle(x any) uint64 {
	h := 0x5ca1_ab1e_0000 + 16*lastHandle.Add(1)
	m.handles[h] = x
	return h
}

// lookup returns the object of a handle, if it is a T.
func lookup[T any](m *Machine, h uint64) (T, bool) {
	x, ok := m.handles[h].(T)
	return x, ok
}

// must panics for errors that only a bug here, or a host without memory, can cause.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("fakecuda: %v", err))
	}
}

// pointer converts an address from a C caller or from mmap to a pointer.
func pointer(address uint64) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// bytesAt returns the memory at a checked address.
func bytesAt(address uint64, n int64) []byte {
	return unsafe.Slice((*byte)(pointer(address)), n)
}
