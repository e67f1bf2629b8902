package sim

import (
	"sort"

	"github.com/ashlar-go/ashlar/driver"
)

// A clock is a vector clock. It holds, for each stream by its number, the tick up to which the stream's work is known
// to come before. Streams beyond its length are at 0.
//
// Every piece of work, wait and mark takes the next tick of its stream. Work with tick t on stream a comes before work
// on stream b if and only if b's clock, when the latter was queued, had at least t for a.
type clock []uint64

func (c clock) at(id driver.StreamID) uint64 {
	if int(id) < len(c) {
		return c[id]
	}
	return 0
}

// covers reports whether c is at least other for every stream but one.
func (c clock) covers(other clock, but driver.StreamID) bool {
	for id, tick := range other {
		if tick > c.at(driver.StreamID(id)) && driver.StreamID(id) != but {
			return false
		}
	}
	return true
}

// raise takes the pointwise maximum of both into c and returns c.
func (c clock) raise(other clock) clock {
	for len(c) < len(other) {
		c = append(c, 0)
	}
	for id, tick := range other {
		c[id] = max(c[id], tick)
	}
	return c
}

// set raises one stream's tick in c and returns c.
func (c clock) set(id driver.StreamID, tick uint64) clock {
	for len(c) <= int(id) {
		c = append(c, 0)
	}
	c[id] = max(c[id], tick)
	return c
}

// A version is the value of a stream's clock from one tick on until the next version.
type version struct {
	from  uint64
	clock clock
}

// clock returns the work of other streams that the stream's next work comes after.
func (tl *timeline) clock() clock {
	if len(tl.versions) == 0 {
		return nil
	}
	return tl.versions[len(tl.versions)-1].clock
}

// clockAt returns the value of the clock at a tick.
func (tl *timeline) clockAt(tick uint64) clock {
	i := sort.Search(len(tl.versions), func(i int) bool { return tl.versions[i].from > tick }) - 1
	if i < 0 {
		return nil
	}
	return tl.versions[i].clock
}

// join makes the stream's next work come after the work in other, and after a tick of the stream id.
func (d *Device) join(tl *timeline, other clock, id driver.StreamID, tick uint64) {
	current := tl.clock()
	if current.covers(other, tl.id) && (id == tl.id || current.at(id) >= tick) {
		return
	}
	from := tl.queued + 1
	last := len(tl.versions) - 1
	if last < 0 || tl.versions[last].from != from {
		tl.versions = append(tl.versions, version{from, append(clock(nil), current...)})
		last++
	}
	tl.versions[last].clock = tl.versions[last].clock.raise(other).set(id, tick)
	d.forget(tl)
}

// forget drops the versions of ticks that the host knows to be done: a later wait for one of them learns as much from
// the host. The others are kept for marks that may still be waited for.
func (d *Device) forget(tl *timeline) {
	known, old := d.host.at(tl.id), 0
	for old+1 < len(tl.versions) && tl.versions[old+1].from <= known+1 {
		old++
	}
	clear(tl.versions[:old])
	tl.versions = tl.versions[old:]
}

// joinHost makes the stream's next work come after all that the host knows to be done.
func (d *Device) joinHost(tl *timeline) {
	if tl.hostGeneration != d.hostGeneration {
		tl.hostGeneration = d.hostGeneration
		d.join(tl, d.host, tl.id, 0)
	}
}

// waitFor makes the stream's next work come after a mark of another. The mark's clock need not include what the host
// knew when the mark was taken: the host still knows it when the next work is queued.
func (d *Device) waitFor(tl, other *timeline, tick uint64) {
	if !d.opts.Unchecked && tick > d.host.at(other.id) {
		d.join(tl, other.clockAt(tick), other.id, tick)
	}
}

// markSeen records that the host knows a stream's work up to a tick to be done.
func (d *Device) markSeen(tl *timeline, tick uint64) {
	if d.opts.Unchecked {
		return
	}
	if tick > d.host.at(tl.id) {
		d.host = d.host.raise(tl.clockAt(tick)).set(tl.id, tick)
		d.hostGeneration++
	}
	d.forget(tl)
}

// markAllSeen records that the host knows all queued work to be done.
func (d *Device) markAllSeen() {
	if d.opts.Unchecked {
		return
	}
	for _, tl := range d.timelines {
		if tl.queued > d.host.at(tl.id) {
			d.host = d.host.set(tl.id, tl.queued)
			d.hostGeneration++
		}
		d.forget(tl)
	}
}

// before reports whether an earlier access comes before the stream's next work.
func (tl *timeline) before(a *Access) bool {
	return a.Stream == tl.id || tl.clock().at(a.Stream) >= a.Tick
}
