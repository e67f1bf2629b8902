package bfc

import "sync/atomic"

// A Counter counts the frees of the allocators that share it: TensorFlow's SharedCounter. It is safe for concurrent
// use.
type Counter struct{ n atomic.Uint64 }

// Next increments the counter and returns it; the first result is 1.
func (c *Counter) Next() uint64 { return c.n.Add(1) }

// Get returns the last result of Next, or 0.
func (c *Counter) Get() uint64 { return c.n.Load() }

// SetSafeFrontier declares that memory whose free has a stamp (see Config.Counter) below count is safe for every use:
// it merges with its neighbours at the next request, and Options.FreedBefore no longer bounds it. The frontier never
// falls: a lower count changes nothing. Requests that wait for memory try again.
func (a *Allocator) SetSafeFrontier(count uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if count > a.frontier {
		a.frontier = count
		a.gate.Wake()
	}
}

// queue lists a stamped free block for merging.
func (a *Allocator) queue(n ref) {
	r := &a.blocks[n]
	if r.freedAt == 0 {
		return
	}
	if r.freedAt < a.frontier { // the frontier may be ahead of the counter
		a.merged = 0
	}
	if !r.queued {
		r.queued = true
		a.timed = append(a.timed, n)
	}
}

// mergeTimed merges the stamped blocks that the safe frontier has passed. If need is not 0 it then merges others too,
// in the order of their frees, until a block has need bytes, and reports whether one has.
func (a *Allocator) mergeTimed(need int64) bool {
	if len(a.timed) == 0 || need == 0 && a.frontier == a.merged {
		return false
	}
	a.merged = a.frontier
	var line []ref
	left := a.timed[:0]
	for _, n := range a.timed {
		switch r := &a.blocks[n]; {
		case r.state != free:
			r.queued = false
		case r.freedAt < a.frontier || need > 0:
			if r.freedAt < a.frontier {
				r.freedAt = 0
			}
			r.queued = false
			line = append(line, n)
		default:
			left = append(left, n)
		}
	}
	a.timed = left
	done, vacant := need == 0, len(a.unused)
	for _, n := range line {
		r := &a.blocks[n]
		if r.state != free { // merged into another
			continue
		}
		if r.freedAt == 0 || !done {
			a.removeFromBin(n)
			n = a.coalesce(n, !done)
			a.addToBin(n)
			done = done || a.blocks[n].size >= need
		}
		a.queue(n)
	}
	if need > 0 && len(a.unused) > vacant { // maybe enough for a waiting request
		a.gate.Wake()
	}
	return need > 0 && done
}
