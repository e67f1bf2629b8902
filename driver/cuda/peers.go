//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// peers implements driver.Peers. It panics if a driver.Device belongs to another driver, which is a bug of the caller,
// as for streams of other devices.
type peers struct{ d *device }

func (d *device) Peers() driver.Peers { return peers{d} }

// A pair is a context that may use the memory of another context.
type pair struct{ user, owner cu.Context }

// If a device is opened twice, both share a context and its enabled access. Access is disabled when the last one
// releases it.
//
// A copy between devices uses the access that is enabled when it is queued, even if other code enabled it. So no copy
// may be queued from the wait for earlier copies until access is disabled: otherwise libcuda would unmap memory that a
// copy still uses.
var (
	copying   sync.RWMutex // read-locked to queue copies, locked to disable access; taken before all others
	enabledMu sync.Mutex   // held while access is enabled or disabled; taken after device.life
	enabled   = map[pair]int{}
	copiers   sync.Map // the keys are the open *devices that have queued such copies
)

// A peerSet holds the contexts whose memory a device may use. enabledMu guards it.
type peerSet map[cu.Context]bool

// device returns other as a device of this driver.
func (p peers) device(call string, other driver.Device) *device {
	o, ok := other.(*device)
	if !ok || o == nil {
		panic("driver/cuda: " + call + ": not a device of this driver")
	}
	return o
}

// enterPeer is enter for a second device of a call: that device stays open until leavePeer. It never waits, because two
// devices that wait for each other's Close would deadlock. If it would have to wait, Close has begun, and it returns an
// error.
func (d *device) enterPeer(call string, entered *device) error {
	if d == entered {
		return nil
	}
	if d.life.TryRLock() {
		if !d.closed {
			return nil
		}
		d.life.RUnlock()
	}
	return closedError(call, fmt.Sprintf("device %d", d.info.Ordinal))
}

func (d *device) leavePeer(entered *device) {
	if d != entered {
		d.life.RUnlock()
	}
}

// CanAccess returns true for the device itself.
func (p peers) CanAccess(other driver.Device) (bool, error) {
	const call = "Peers.CanAccess"
	o := p.device(call, other)
	if err := p.d.enter(call); err != nil {
		return false, err
	}
	defer p.d.leave()
	return p.canAccess(call, o)
}

func (p peers) canAccess(call string, o *device) (bool, error) {
	if o.dev == p.d.dev {
		return true, nil
	}
	can, r := p.d.lib.DeviceCanAccessPeer(p.d.dev, o.dev)
	return can, p.d.fail(call, r, "device %d to device %d", p.d.info.Ordinal, o.info.Ordinal)
}

func (p peers) Enable(other driver.Device) error {
	const call = "Peers.Enable"
	o := p.device(call, other)
	if err := p.d.enter(call); err != nil {
		return err
	}
	defer p.d.leave()
	if o.ctx == p.d.ctx {
		return nil
	}
	if err := o.enterPeer(call, p.d); err != nil {
		return err
	}
	defer o.leavePeer(p.d)
	can, err := p.canAccess(call, o)
	if err != nil {
		return err
	}
	if !can {
		return p.d.fail(call, cu.PeerAccessUnsupported, "device %d to device %d", p.d.info.Ordinal, o.info.Ordinal)
	}
	enabledMu.Lock()
	defer enabledMu.Unlock()
	if r := p.d.lib.EnablePeerAccess(o.ctx); r != cu.Success && r != cu.PeerAlreadyEnabled {
		return p.d.fail(call, r, "device %d to device %d", p.d.info.Ordinal, o.info.Ordinal)
	}
	if p.d.peers == nil {
		p.d.peers = peerSet{}
	}
	if !p.d.peers[o.ctx] {
		p.d.peers[o.ctx] = true
		enabled[pair{p.d.ctx, o.ctx}]++
	}
	return nil
}

func (p peers) Disable(other driver.Device) error {
	const call = "Peers.Disable"
	o := p.device(call, other)
	copying.Lock()
	defer copying.Unlock()
	if err := drainCopiers(call, p.d.ctx, o.ctx); err != nil {
		return err
	}
	if err := p.d.enter(call); err != nil {
		return err
	}
	defer p.d.leave()
	if err := p.d.drain(call); err != nil {
		return err
	}
	return p.d.fail(call, p.d.disablePeer(o.ctx), "device %d to device %d", p.d.info.Ordinal, o.info.Ordinal)
}

// drainCopiers waits for the work of all devices in these contexts that copy between devices. copying is held.
func drainCopiers(call string, contexts ...cu.Context) error {
	for key := range copiers.Range {
		d := key.(*device)
		if !slices.Contains(contexts, d.ctx) {
			continue
		}
		if err := d.drained(call); err != nil && !errors.Is(err, driver.ErrClosed) {
			return err
		}
	}
	return nil
}

// drained is drain outside of enter and leave.
func (d *device) drained(call string) error {
	if err := d.enter(call); err != nil {
		return err
	}
	defer d.leave()
	return d.drain(call)
}

// disablePeer releases the device's access to another context's memory, if it has access.
func (d *device) disablePeer(owner cu.Context) cu.Result {
	enabledMu.Lock()
	defer enabledMu.Unlock()
	if !d.peers[owner] {
		return cu.Success
	}
	if enabled[pair{d.ctx, owner}] == 1 {
		switch r := d.lib.DisablePeerAccess(owner); r {
		case cu.Success, cu.PeerNotEnabled:
		case cu.ContextIsDestroyed, cu.InvalidContext: // the other device was closed, and its memory freed
		default:
			return r
		}
		delete(enabled, pair{d.ctx, owner})
	} else {
		enabled[pair{d.ctx, owner}]--
	}
	delete(d.peers, owner)
	return cu.Success
}

// owners returns the contexts whose memory the device may use.
func (d *device) owners() []cu.Context {
	enabledMu.Lock()
	defer enabledMu.Unlock()
	return slices.Collect(maps.Keys(d.peers))
}

// leavePeers releases all access before Close, which holds device.life and so cannot wait for other devices. closePeers
// tries again where this fails, and reports errors.
func (d *device) leavePeers() {
	if len(d.owners()) == 0 {
		return
	}
	copying.Lock()
	defer copying.Unlock()
	const call = "Close"
	if drainCopiers(call, append(d.owners(), d.ctx)...) != nil || d.enter(call) != nil {
		return
	}
	defer d.leave()
	if d.drain(call) == nil {
		d.closePeers()
	}
}

// closePeers releases all access.
func (d *device) closePeers() cu.Result {
	owners := d.owners()
	first := cu.Success
	for _, c := range owners {
		if r := d.disablePeer(c); first == cu.Success {
			first = r
		}
	}
	return first
}

// CopyPeer between two devices calls cuMemcpyPeerAsync, which copies directly if access is enabled and otherwise
// through the host, and works for every kind of memory. PyTorch uses it whenever a plain copy might fail
// (CUDACachingAllocator, memcpyAsync). Within one device a plain copy always works.
func (p peers) CopyPeer(
	s driver.Stream, dst driver.Pointer, to driver.Device, src driver.Pointer, from driver.Device, n int64,
) error {
	const call = "Peers.CopyPeer"
	checkSize(call, n)
	o, there, here := p.d.ownStream(call, s), p.device(call, to), p.device(call, from)
	if there != p.d && here != p.d {
		return invalidError(call, "neither of the devices is the stream's")
	}
	if there.ctx != here.ctx {
		copying.RLock()
		defer copying.RUnlock()
	}
	if err := o.begin(call); err != nil {
		return err
	}
	defer o.end()
	for _, d := range []*device{there, here} {
		if err := d.enterPeer(call, p.d); err != nil {
			return err
		}
		defer d.leavePeer(p.d)
	}
	if err := there.reachable(call, dst, n); err != nil {
		return err
	}
	if err := here.reachable(call, src, n); err != nil {
		return err
	}
	if err := checkOverlap(call, dst, src, n); err != nil || n == 0 {
		return err
	}
	var r cu.Result
	if there.ctx == here.ctx {
		r = p.d.lib.MemcpyDtoDAsync(uint64(dst), uint64(src), n, o.handle)
	} else {
		copiers.LoadOrStore(p.d, true)
		r = p.d.lib.MemcpyPeerAsync(uint64(dst), there.ctx, uint64(src), here.ctx, n, o.handle)
	}
	if r != cu.Success {
		return p.d.fail(call, r, "%d bytes from device %d to device %d", n, here.info.Ordinal, there.info.Ordinal)
	}
	o.queued()
	return nil
}

// Share calls cuMemSetAccess. It returns ErrUnsupported, without any change of access, if one of the others is not
// linked.
func (p peers) Share(at driver.Pointer, size int64, others ...driver.Device) error {
	const call = "Peers.Share"
	checkSize(call, size)
	var access []cu.MemAccess
	for _, other := range others {
		if o := p.device(call, other); o.dev != p.d.dev {
			access = append(access, cu.ReadWrite(o.dev))
		}
	}
	if err := p.d.enter(call); err != nil {
		return err
	}
	defer p.d.leave()
	if err := p.d.mappedRun(call, at, size); err != nil {
		return err
	}
	for _, a := range access {
		can, r := p.d.lib.DeviceCanAccessPeer(cu.Device(a.LocationID), p.d.dev)
		if r == cu.Success && !can {
			r = cu.PeerAccessUnsupported
		}
		if r != cu.Success {
			return p.d.fail(call, r, "device %d to device %d", a.LocationID, p.d.info.Ordinal)
		}
	}
	if len(access) == 0 {
		return nil
	}
	return p.d.fail(call, p.d.lib.MemSetAccess(uint64(at), size, access...), "%#x+%d", at, size)
}
