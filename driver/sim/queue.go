package sim

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
)

// A timeline is the queue of one stream number. Work, waits and marks take consecutive ticks and complete in order:
// ticks up to done have completed, and ticks up to queued have been queued. A mark is its own tick, so each mark of a
// held stream completes separately.
//
// A wait names a tick that was taken before it. So waits cannot form a cycle, and the work that must precede a piece of
// work can always be completed.
type timeline struct {
	id           driver.StreamID
	queued, done uint64
	queue        []work // ticks done+1 to queued, from head on
	head         int
	held         bool
	runnable     bool        // in Device.runnable: not held, and something in the queue
	occupied     atomic.Bool // the newest piece of work in the queue is Occupy's
	err          error       // of kernels, not returned yet

	branch         *branch   // of a capture that the stream is in; see capture.go
	versions       []version // of the stream's clock; see clock.go
	hostGeneration uint64    // of Device.hostGeneration when it was last joined
}

// work is one entry of a queue, by the call that made it.
type work struct {
	call     Call
	seq      uint64 // of the call
	src, dst []piece
	fill     byte
	data     []byte // of CopyIn: a copy, once it is queued; of others: page-locked memory, used when the work is done
	kernel   *driver.Kernel
	stamp    *stamp
	parts    *[]work // of a graph, in an order that its branches allow
	graph    uint64  // of a part: the graph's number, and its own in it, from 1
	node     int
	other    *timeline // of a wait, with tick
	tick     uint64
}

func (d *Device) newTimeline() *timeline {
	tl := &timeline{id: driver.StreamID(len(d.timelines)), held: d.opts.Completion == OnDemand}
	d.timelines = append(d.timelines, tl)
	return tl
}

// submit queues w as the timeline's next tick, or does it at once if nothing precedes it and the stream is not held.
func (d *Device) submit(tl *timeline, w work) {
	tl.queued++
	w.seq = d.seq
	if tl.occupied.Load() {
		tl.occupied.Store(false)
	}
	if !tl.held && tl.done+1 == tl.queued && d.opts.Completion != AtRandom && !w.blocked() && !w.endless() {
		tl.done++
		d.perform(tl, &w)
		return
	}
	w.src, w.dst = slices.Clone(w.src), slices.Clone(w.dst)
	if w.call == CallCopyIn {
		w.data = slices.Clone(w.data)
	}
	tl.queue = append(tl.queue, w)
	d.queued++
	d.addRunnable(tl)
}

func (w *work) blocked() bool { return w.call == CallWaitFor && w.other.done < w.tick }

// endless reports whether w never completes by itself.
func (w *work) endless() bool { return w.call == callOccupy }

// idle reports whether w does nothing: no call waits for it alone.
func (w *work) idle() bool { return w.call == CallMark || w.call == CallWaitFor }

// addRunnable adds the timeline to the runnable ones if it is runnable.
func (d *Device) addRunnable(tl *timeline) {
	if !tl.held && !tl.runnable && tl.done < tl.queued {
		tl.runnable = true
		d.runnable = append(d.runnable, tl)
	}
}

// removeRunnable removes the timeline from the runnable ones.
func (d *Device) removeRunnable(tl *timeline) {
	if tl.runnable {
		tl.runnable = false
		i := slices.Index(d.runnable, tl)
		d.runnable = slices.Delete(d.runnable, i, i+1)
	}
}

func (tl *timeline) front() *work { return &tl.queue[tl.head] }

// ready reports whether the timeline has work that may complete now.
func (tl *timeline) ready() bool {
	return tl.done < tl.queued && !tl.front().blocked() && !tl.front().endless()
}

// step completes the first piece of work, which is ready.
func (d *Device) step(tl *timeline) {
	w := *tl.front()
	tl.queue[tl.head] = work{}
	if tl.head++; tl.head == len(tl.queue) {
		tl.queue, tl.head = tl.queue[:0], 0
	} else if tl.head >= 64 && tl.head > len(tl.queue)/2 {
		tl.queue, tl.head = slices.Delete(tl.queue, 0, tl.head), 0
	}
	d.queued--
	if tl.done++; tl.done == tl.queued {
		d.removeRunnable(tl)
		tl.occupied.Store(false)
	}
	d.addToHash(uint64(tl.id))
	d.addToHash(tl.done)
	d.perform(tl, &w)
}

// drain completes a timeline's work up to a tick, and all work that it waits for, held or not. It reports whether any
// of that was work other than marks and waits.
func (d *Device) drain(tl *timeline, tick uint64) (worked bool) {
	if tl.done >= tick {
		return false
	}
	worked = d.complete(tl, tick)
	d.completeReady()
	return worked
}

// complete is drain without the work of other timelines that is ready afterwards.
func (d *Device) complete(tl *timeline, tick uint64) (worked bool) {
	type goal struct {
		tl   *timeline
		tick uint64
	}
	goals := []goal{{tl, tick}}
	for len(goals) > 0 {
		g := goals[len(goals)-1]
		switch w := (*work)(nil); {
		case g.tl.done >= g.tick:
			goals = goals[:len(goals)-1]
		default:
			if w = g.tl.front(); w.blocked() {
				goals = append(goals, goal{w.other, w.tick})
			} else {
				worked = worked || !w.idle()
				d.step(g.tl)
			}
		}
	}
	return worked
}

// completeReady completes work that is no longer blocked, unless completion is at random.
func (d *Device) completeReady() {
	if d.opts.Completion == AtRandom {
		return
	}
	for again := true; again; {
		again = false
		for _, tl := range slices.Clone(d.runnable) {
			for tl.runnable && tl.ready() {
				d.step(tl)
				again = true
			}
		}
	}
}

// stepAtRandom completes up to three pieces of work of timelines drawn by the seed.
func (d *Device) stepAtRandom() {
	for range d.rng.IntN(4) {
		n := len(d.runnable)
		if n == 0 {
			return
		}
		for i, from := 0, d.rng.IntN(n); i < n; i++ {
			if tl := d.runnable[(from+i)%n]; tl.ready() {
				d.step(tl)
				break
			}
		}
	}
}

// syncAll completes all work, and records that the host knows. Its result is that of drain.
func (d *Device) syncAll() (worked bool) {
	if d.queued > 0 {
		for _, tl := range d.timelines {
			worked = d.complete(tl, tl.queued) || worked
		}
	}
	d.markAllSeen()
	return worked
}

// takeError returns err joined with the kernels' errors that no call has returned yet.
func (tl *timeline) takeError(err error) error {
	err, tl.err = join(err, tl.err), nil
	return err
}

// With the methods below a test controls the queues. They name streams by number, so they work through wrappers. They
// cost nothing and do not count as calls. They panic if no stream ever had the number.

func (d *Device) timelineFor(id driver.StreamID) *timeline {
	if int(id) >= len(d.timelines) {
		panic(fmt.Sprintf("driver/sim: no stream has the number %d", id))
	}
	return d.timelines[id]
}

// Hold keeps the work that is queued on a stream from now on from completing by itself.
func (d *Device) Hold(id driver.StreamID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tl := d.timelineFor(id)
	tl.held = true
	d.removeRunnable(tl)
}

// Resume ends Hold: the work queued on the stream completes, up to the first wait for work that is not complete.
func (d *Device) Resume(id driver.StreamID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tl := d.timelineFor(id)
	tl.held = false
	d.addRunnable(tl)
	d.completeReady()
}

// Advance completes up to n pieces of queued work (waits and marks are pieces too) of a stream, held or not. It stops
// at a wait for work that is not complete, and returns how many completed.
func (d *Device) Advance(id driver.StreamID, n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	tl := d.timelineFor(id)
	completed := 0
	for completed < n && tl.done < tl.queued && !tl.front().blocked() {
		d.step(tl)
		completed++
	}
	d.completeReady()
	return completed
}

// Complete completes the work before a mark, and the work for which that waits, held or not. The host is not ordered
// after it: it must still call Reached or Sync. In the order of the marks it costs the same for each, however many are
// pending; to have marks complete in any order, take them on streams of their own, which are cheap and whose numbers
// are used again.
func (d *Device) Complete(m driver.Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tl := d.timelineFor(m.Stream)
	if m.Tick > tl.queued {
		panic(fmt.Sprintf("driver/sim: Complete of a mark at tick %d of stream %d, which is at %d", m.Tick, tl.id,
			tl.queued))
	}
	d.drain(tl, m.Tick)
}

// Pending returns how many pieces of work of a stream are not complete.
func (d *Device) Pending(id driver.StreamID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	tl := d.timelineFor(id)
	return int(tl.queued - tl.done)
}
