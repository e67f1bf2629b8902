package sim

import (
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// A Call is a method of package driver that calls the device. IsPinned, Capturing and Ordered are not among them: they
// need no call of the device.
type Call uint8

const (
	CallAvailable Call = iota
	CallAlloc
	CallFree
	CallNewStream
	CallCloseStream
	CallCopy
	CallCopyIn
	CallCopyOut
	CallFill
	CallMark
	CallReached
	CallWaitFor
	CallSync
	CallReserve
	CallRelease
	CallCreate
	CallDrop
	CallMap
	CallUnmap
	CallLaunch
	CallAllocHost
	CallFreeHost
	CallRegister
	CallUnregister
	CallCopyInAsync
	CallCopyOutAsync
	CallStamp
	CallElapsed
	CallDiscard
	CallBeginCapture
	CallEndCapture
	CallLaunchGraph
	CallCloseGraph
	NumCalls

	callOccupy = NumCalls // not a call of package driver: see Stream.Occupy
)

var callNames = [NumCalls]string{
	"Available", "Alloc", "Free", "NewStream", "Stream.Close", "Stream.Copy", "Stream.CopyIn", "Stream.CopyOut",
	"Stream.Fill", "Stream.Mark", "Stream.Reached", "Stream.WaitFor", "Stream.Sync", "VirtualMemory.Reserve",
	"VirtualMemory.Release", "VirtualMemory.Create", "VirtualMemory.Drop", "VirtualMemory.Map", "VirtualMemory.Unmap",
	"Kernels.Launch", "Pinned.AllocHost", "Pinned.FreeHost", "Pinned.Register", "Pinned.Unregister",
	"Pinned.CopyInAsync",
	"Pinned.CopyOutAsync", "Timing.Stamp", "Timing.Elapsed", "Timing.Discard", "Graphs.Begin", "Graphs.End",
	"Graph.Launch", "Graph.Close",
}

// String returns the method's name as driver.Error has it: "Alloc", "Stream.Copy", "VirtualMemory.Map".
func (c Call) String() string {
	if c < NumCalls {
		return callNames[c]
	}
	return "unknown"
}

// A Tally is the number of calls of a method, failed calls included, and their total modelled time. Stalls is the
// number of calls that made the host wait for work that was not complete; marks and waits for other streams do not
// count as work.
type Tally struct {
	Count  int64
	Time   time.Duration
	Stalls int64
}

// Calls holds a Tally for every Call.
type Calls [NumCalls]Tally

// Total returns the sum over all methods.
func (c *Calls) Total() Tally {
	var sum Tally
	for _, t := range c {
		sum.Count += t.Count
		sum.Time += t.Time
		sum.Stalls += t.Stalls
	}
	return sum
}

// Now returns the virtual time: the time of the calls so far by the cost model. It starts at 0 and does not follow any
// real clock.
func (d *Device) Now() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// Calls returns the tallies so far.
func (d *Device) Calls() Calls {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// Hash returns a hash of every call so far: its method, sizes, addresses and result, and the order of completions.
// Devices with equal options and equal calls have equal hashes. It is not a cryptographic hash.
func (d *Device) Hash() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return mix(d.hash ^ uint64(d.now))
}

// begin starts a call: it counts the call, adds its cost, hashes it and, with AtRandom, completes some queued work. The
// error is that the device is closed.
func (d *Device) begin(c Call, cost time.Duration, args ...uint64) error {
	if d.closed {
		return &driver.Error{Call: c.String(), Code: driver.ErrClosed, Detail: "the device is closed"}
	}
	d.seq++
	d.calls[c].Count++
	d.charge(c, cost)
	d.addToHash(uint64(c))
	for _, a := range args {
		d.addToHash(a)
	}
	if d.opts.Completion == AtRandom && len(d.runnable) > 0 {
		d.stepAtRandom()
	}
	return nil
}

// charge adds to the cost of a call.
func (d *Device) charge(c Call, cost time.Duration) {
	d.calls[c].Time += cost
	d.now += cost
}

// waited counts a call that had to wait, if it did.
func (d *Device) waited(c Call, worked bool) {
	if worked {
		d.calls[c].Stalls++
	}
}

// cost returns the cost of a call of size bytes.
func (d *Device) cost(c Call, size int64) time.Duration { return d.model.Calls[c].At(size) }

// addToHash adds a word to the hash.
func (d *Device) addToHash(word uint64) { d.hash = mix(d.hash ^ word) }

// fail returns an error of a call, and adds the failure to the hash.
func (d *Device) fail(c Call, code error, detail string) error {
	d.addToHash(^uint64(0))
	return &driver.Error{Call: c.String(), Code: code, Detail: detail}
}

// mix is a bijection of 64-bit words in which every output bit depends on every input bit (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
