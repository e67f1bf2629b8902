package host

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// peers implements driver.Peers. All host devices of a process share its addresses, so each could access the memory of
// the others. As on hardware, Enable and Share must permit it.
//
// The caller must not free memory while work of another device uses it: Free waits only for the streams of its own
// device, as cuMemFree does.
type peers struct{ d *device }

func (d *device) Peers() driver.Peers { return peers{d} }

// A peer is another device of whose memory this one may use some: memory of Alloc, if it is enabled, and pages that are
// shared with this one.
type peer struct {
	d       *device
	enabled bool
}

// allows reports whether work of device to may use the n > 0 bytes at p.
func (o peer) allows(to *device, p driver.Pointer, n int64) bool {
	o.d.mu.RLock()
	defer o.d.mu.RUnlock()
	return o.enabled && o.d.inBlock(p, n) || o.d.inPages(p, n, to)
}

// hostDevice returns other as a device of this package, and panics if it is not one.
func hostDevice(call string, other driver.Device) *device {
	o, ok := other.(*device)
	if !ok || o == nil {
		panic(fmt.Sprintf("driver/host: %s: %T is not a device of this driver", call, other))
	}
	return o
}

// open fails if d is closed.
func (d *device) open(call string) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return closedError(call)
	}
	return nil
}

// changePeer changes d's record of its peer o, and makes one if there is none. It fails if d is closed.
func (d *device) changePeer(call string, o *device, change func(*peer)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return closedError(call)
	}
	met := slices.Clone(d.peers)
	i := slices.IndexFunc(met, func(p peer) bool { return p.d == o })
	if i < 0 {
		i, met = len(met), append(met, peer{d: o})
	}
	change(&met[i])
	d.peers = met
	return nil
}

// CanAccess returns true for every device, also for the device itself.
func (p peers) CanAccess(other driver.Device) (bool, error) {
	const call = "Peers.CanAccess"
	if err := hostDevice(call, other).open(call); err != nil {
		return false, err
	}
	err := p.d.open(call)
	return err == nil, err
}

func (p peers) Enable(other driver.Device) error {
	const call = "Peers.Enable"
	o := hostDevice(call, other)
	if err := o.open(call); err != nil || o == p.d {
		return err
	}
	return p.d.changePeer(call, o, func(p *peer) { p.enabled = true })
}

func (p peers) Disable(other driver.Device) error {
	const call = "Peers.Disable"
	o := hostDevice(call, other)
	p.d.mu.RLock()
	streams := slices.Clone(p.d.streams)
	p.d.mu.RUnlock()
	for _, s := range streams {
		s.drain()
	}
	return p.d.changePeer(call, o, func(p *peer) { p.enabled = false })
}

// CopyPeer works without Enable.
func (p peers) CopyPeer(
	s driver.Stream, dst driver.Pointer, to driver.Device, src driver.Pointer, from driver.Device, n int64,
) error {
	const call = "Peers.CopyPeer"
	own, hostTo, hostFrom := p.d.stream(call, s), hostDevice(call, to), hostDevice(call, from)
	if hostTo != p.d && hostFrom != p.d {
		return invalidError(call, "neither device is the one that the stream is of")
	}
	return own.copySpan(call, span{d: hostTo, at: dst, size: n}, span{d: hostFrom, at: src, size: n})
}

// Share fails without virtual memory, since no pages are mapped.
func (p peers) Share(at driver.Pointer, size int64, others ...driver.Device) error {
	const call = "Peers.Share"
	with := make([]*device, len(others))
	for i, other := range others {
		with[i] = hostDevice(call, other)
	}
	if size < 0 {
		panic(fmt.Sprintf("driver/host: %s of %d bytes", call, size))
	}
	if err := p.share(call, at, size, with); err != nil {
		return err
	}
	for _, o := range with {
		if err := o.changePeer(call, p.d, func(*peer) {}); err != nil {
			return err
		}
	}
	return nil
}

// share records in the mappings that others may use them.
func (p peers) share(call string, at driver.Pointer, size int64, with []*device) error {
	v := virtualMemory(p)
	if err := v.open(call); err != nil {
		return err
	}
	defer p.d.mu.Unlock()
	mapped, from, to, err := v.wholePages(call, at, size)
	if err != nil {
		return err
	}
	for i := from; i < to; i++ {
		m := &(*mapped)[i].Value
		for _, o := range with {
			if !slices.Contains(m.peers, o) {
				m.peers = append(m.peers, o)
			}
		}
	}
	return nil
}
