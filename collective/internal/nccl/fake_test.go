//go:build linux && (amd64 || arm64) && !nocuda

package nccl

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// A fakeNCCL is the state behind the functions below: an NCCL that moves no data, checks the order and the caller of
// every call, and logs it. It is at least as strict as NCCL's documentation.
type fakeNCCL struct {
	mu      sync.Mutex
	changed *sync.Cond
	log     []string
	misuse  []string
	comms   map[uintptr]*fakeComm
	groups  map[int][]uintptr // by thread: the communicators of the calls of its open group, 0 first
	current map[int]bool      // threads on which a device is current

	version int32
	polls   int               // how often a state is "in progress" after each call
	hold    map[symbol]bool   // whose calls stay in progress until release
	results map[symbol]result // what calls return, or, if they had to be in progress, what becomes of them
	missing symbol            // not there; 0 for none
}

type fakeComm struct {
	id         ID
	rank, size int
	config     config
	doing      symbol // what is in progress
	left       int    // questions until it is done
	state      result
	finalized  bool
	given      symbol // what gave it up
	busy       atomic.Bool
}

var (
	installed  atomic.Pointer[fakeNCCL]
	lastHandle uintptr = 0x5ca1ab1e0000
	functions          = sync.OnceValue(callbacks)
	someText           = []byte("invalid argument (said the fake)\x00")
	lastText           = []byte("what went wrong last\n\x00")
)

func newFake(t testing.TB) *fakeNCCL {
	f := &fakeNCCL{
		comms: map[uintptr]*fakeComm{}, groups: map[int][]uintptr{}, current: map[int]bool{},
		hold: map[symbol]bool{}, results: map[symbol]result{}, version: 22809, polls: 3,
	}
	f.changed = sync.NewCond(&f.mu)
	if !installed.CompareAndSwap(nil, f) {
		t.Fatal("another fake is installed")
	}
	t.Cleanup(func() {
		installed.Store(nil)
		for _, m := range f.misuse {
			t.Error(m)
		}
		for _, c := range f.comms {
			if c.given == 0 {
				t.Errorf("the communicator of rank %d was not given up", c.rank)
			}
		}
		if len(f.groups) > 0 {
			t.Errorf("%d threads are in a group", len(f.groups))
		}
	})
	return f
}

// library is the fake as a library.
func (f *fakeNCCL) library(t testing.TB) *library {
	t.Helper()
	l, err := newLibrary("fake", f.lookup)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (f *fakeNCCL) lookup(name string) (uintptr, error) {
	for s, n := range symbols {
		if n == name && (f.missing == 0 || symbol(s) != f.missing) {
			return functions()[s], nil
		}
	}
	return 0, fmt.Errorf("undefined symbol: %s", name)
}

// set changes the fake.
func (f *fakeNCCL) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// calls returns the calls so far, except queries, and clears the log.
func (f *fakeNCCL) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

// waitFor returns when s was called.
func (f *fakeNCCL) waitFor(s symbol) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !slices.ContainsFunc(f.log, func(line string) bool { return len(line) >= len(symbols[s]) && line[:len(symbols[s])] == symbols[s] }) {
		f.changed.Wait()
	}
}

// release lets calls of s end that were held.
func (f *fakeNCCL) release(s symbol) {
	f.set(func() { delete(f.hold, s) })
}

// enter starts a call: of the thread's own (handle 0) or of a communicator. A call of device wants one to be current.
func (f *fakeNCCL) enter(s symbol, handle uintptr, device bool, args ...any) *fakeComm {
	f.mu.Lock()
	if s != commGetAsyncError {
		f.log = append(f.log, fmt.Sprint(append([]any{symbols[s]}, args...)...))
		f.changed.Broadcast()
	}
	tid := unix.Gettid()
	if device && !f.current[tid] {
		f.wrong("%s: no device is current", symbols[s])
	}
	if handle == 0 {
		return nil
	}
	c := f.comms[handle]
	switch {
	case c == nil:
		f.wrong("%s of handle %#x, which is none", symbols[s], handle)
	case c.given != 0:
		f.wrong("%s after %s", symbols[s], symbols[c.given])
	case !c.busy.CompareAndSwap(false, true):
		f.wrong("%s during another call", symbols[s])
	default:
		f.mu.Unlock()
		runtime.Gosched() // let others in, if they may come
		f.mu.Lock()
		c.busy.Store(false)
		if c.doing != 0 && s != commGetAsyncError && s != commAbort {
			f.wrong("%s while %s is in progress", symbols[s], symbols[c.doing])
		}
		return c
	}
	return &fakeComm{}
}

func (f *fakeNCCL) wrong(format string, args ...any) {
	f.misuse = append(f.misuse, fmt.Sprintf(format, args...))
}

// begin makes a call of c go on until it was asked for often enough.
func (f *fakeNCCL) begin(c *fakeComm, s symbol) result {
	if f.polls == 0 && !f.hold[s] && s != commInitRankConfig {
		return f.results[s]
	}
	c.doing, c.left = s, f.polls
	return inProgress
}

// asked is one query for the state of c.
func (f *fakeNCCL) asked(c *fakeComm) result {
	if c.doing == 0 {
		return c.state
	}
	if f.hold[c.doing] || c.doing == commInitRankConfig && f.came(c.id) < c.size {
		return inProgress
	}
	if c.left--; c.left > 0 {
		return inProgress
	}
	c.state = f.results[c.doing]
	c.doing = 0
	return c.state
}

// came is how many ranks of a communicator have come.
func (f *fakeNCCL) came(id ID) (n int) {
	for _, c := range f.comms {
		if c.id == id {
			n++
		}
	}
	return n
}

func (f *fakeNCCL) initRank(to *uintptr, size int32, id ID, rank int32, c *config) result {
	f.enter(commInitRankConfig, 0, true, " ", rank, " of ", size)
	defer f.mu.Unlock()
	if r := f.results[commInitRankConfig]; r == 4 { // refused at once; others are found later
		return r
	}
	lastHandle++
	*to = lastHandle
	comm := &fakeComm{id: id, rank: int(rank), size: int(size), config: *c}
	f.comms[lastHandle] = comm
	return f.begin(comm, commInitRankConfig)
}

// collective is a call within a group.
func (f *fakeNCCL) collective(s symbol, handle uintptr, args ...any) result {
	c := f.enter(s, handle, true, args...)
	defer f.mu.Unlock()
	tid := unix.Gettid()
	if len(f.groups[tid]) == 0 {
		f.wrong("%s outside a group", symbols[s])
	}
	if c.finalized {
		f.wrong("%s after ncclCommFinalize", symbols[s])
	}
	f.groups[tid] = append(f.groups[tid], handle)
	return f.results[s]
}

func (f *fakeNCCL) endGroup() result {
	f.enter(groupEnd, 0, true)
	defer f.mu.Unlock()
	tid := unix.Gettid()
	group := f.groups[tid]
	if len(group) == 0 {
		f.wrong("ncclGroupEnd outside a group")
	}
	delete(f.groups, tid)
	r := success
	for _, handle := range slices.Compact(group)[1:] {
		r = f.begin(f.comms[handle], groupEnd)
	}
	return r
}

func (f *fakeNCCL) giveUp(s symbol, handle uintptr) result {
	c := f.enter(s, handle, true)
	defer f.mu.Unlock()
	if s == commDestroy && !c.finalized {
		f.wrong("ncclCommDestroy before ncclCommFinalize")
	}
	c.given = s
	return f.results[s]
}

// callbacks makes the C functions, once a process: they cannot be taken back.
func callbacks() [symbolCount]uintptr {
	var table [symbolCount]uintptr
	for s, fn := range map[symbol]any{
		getVersion: func(to *int32) result { *to = installed.Load().version; return success },
		getErrorString: func(code uintptr) uintptr {
			return uintptr(unsafe.Pointer(&someText[0]))
		},
		getLastError: func(comm uintptr) uintptr { return uintptr(unsafe.Pointer(&lastText[0])) },
		getUniqueID: func(to *ID) result {
			*to = someID(7)
			return installed.Load().results[getUniqueID]
		},
		commInitRankConfig: initByValue,
		commGetAsyncError: func(comm uintptr, to *result) result {
			f := installed.Load()
			c := f.enter(commGetAsyncError, comm, false)
			defer f.mu.Unlock()
			*to = f.asked(c)
			return success
		},
		commFinalize: func(comm uintptr) result {
			f := installed.Load()
			c := f.enter(commFinalize, comm, true)
			defer f.mu.Unlock()
			c.finalized = true
			if c.state != success {
				return c.state
			}
			return f.begin(c, commFinalize)
		},
		commDestroy: func(comm uintptr) result { return installed.Load().giveUp(commDestroy, comm) },
		commAbort:   func(comm uintptr) result { return installed.Load().giveUp(commAbort, comm) },
		groupStart: func() result {
			f := installed.Load()
			f.enter(groupStart, 0, true)
			defer f.mu.Unlock()
			tid := unix.Gettid()
			f.groups[tid] = append(f.groups[tid], 0)
			return f.results[groupStart]
		},
		groupEnd: func() result { return installed.Load().endGroup() },
		allReduce: func(src, dst, n uintptr, typ, op int32, comm, stream uintptr) result {
			return reduced(allReduce, src, dst, n, typ, op, comm, stream)
		},
		reduceScatter: func(src, dst, n uintptr, typ, op int32, comm, stream uintptr) result {
			return reduced(reduceScatter, src, dst, n, typ, op, comm, stream)
		},
		broadcast: func(src, dst, n uintptr, typ, root int32, comm, stream uintptr) result {
			text := fmt.Sprintf(" %#x to %#x, %d of type %d from rank %d, stream %#x", src, dst, n, typ, root, stream)
			return installed.Load().collective(broadcast, comm, text)
		},
		allGather: func(src, dst, n uintptr, typ int32, comm, stream uintptr) result {
			text := fmt.Sprintf(" %#x to %#x, %d of type %d, stream %#x", src, dst, n, typ, stream)
			return installed.Load().collective(allGather, comm, text)
		},
		send: func(p, n uintptr, typ, peer int32, comm, stream uintptr) result {
			return moved(send, p, n, typ, peer, comm, stream)
		},
		recv: func(p, n uintptr, typ, peer int32, comm, stream uintptr) result {
			return moved(recv, p, n, typ, peer, comm, stream)
		},
	} {
		table[s] = purego.NewCallback(fn)
	}
	return table
}

func reduced(s symbol, src, dst, n uintptr, typ, op int32, comm, stream uintptr) result {
	text := fmt.Sprintf(" %#x to %#x, %d of type %d, op %d, stream %#x", src, dst, n, typ, op, stream)
	return installed.Load().collective(s, comm, text)
}

func moved(s symbol, p, n uintptr, typ, peer int32, comm, stream uintptr) result {
	text := fmt.Sprintf(" %#x, %d of type %d, rank %d, stream %#x", p, n, typ, peer, stream)
	return installed.Load().collective(s, comm, text)
}

// someID is an ID of which no two bytes that are near each other are the same.
func someID(seed byte) (id ID) {
	for i := range id {
		id[i] = seed + byte(3*i)
	}
	return id
}

// A fakeGPU is a device that has only streams with handles, and the current device of each thread.
type fakeGPU struct {
	driver.Device
	f       *fakeNCCL
	name    string
	compute int

	mu      sync.Mutex
	streams []*fakeStream
}

type fakeStream struct {
	driver.Stream
	d      *fakeGPU
	handle uintptr

	order    sync.Mutex // held over each launch
	launched []driver.Kernel
	closed   bool
}

func (d *fakeGPU) Info() driver.Info {
	return driver.Info{Driver: d.name, Name: "Fake H200", Compute: d.compute}
}

func (d *fakeGPU) Kernels() driver.Kernels { return d }

func (d *fakeGPU) Load([]byte) (driver.Module, error) { panic("not asked for") }

func (d *fakeGPU) NewStream(driver.StreamOptions) (driver.Stream, error) { return d.stream(), nil }

func (d *fakeGPU) stream() *fakeStream {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &fakeStream{d: d, handle: 0x57000 + uintptr(len(d.streams))}
	d.streams = append(d.streams, s)
	return s
}

func (d *fakeGPU) Launch(s driver.Stream, k driver.Kernel) error {
	o := s.(*fakeStream)
	o.order.Lock()
	defer o.order.Unlock()
	if o.closed {
		return &driver.Error{Call: "Kernels.Launch", Code: driver.ErrClosed, Detail: "a stream"}
	}
	o.launched = append(o.launched, k)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	d.f.set(func() { d.f.current[tid] = true })
	defer d.f.set(func() { delete(d.f.current, tid) })
	return k.Call(o.handle)
}

func (s *fakeStream) Close() error {
	s.order.Lock()
	defer s.order.Unlock()
	s.closed = true
	return nil
}

// took returns the kernels that a stream was given, and forgets them.
func (s *fakeStream) took() []driver.Kernel {
	s.order.Lock()
	defer s.order.Unlock()
	taken := s.launched
	s.launched = nil
	return taken
}
