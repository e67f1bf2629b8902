package schedule

// Copies to the host. An engine with a Link copies storages to the host ahead of need, while the link is idle and
// memory is short: those first that take the most time to make for a byte. For policies, a storage with a copy then
// costs at most the part of a copy back that is not hidden. To read it again it is copied back, or computed if that is
// faster. Once the program reads a storage that was away, those made just before it are copied back ahead of need,
// since a program with a backward pass reads them next; for them, copied ones that are read later may be evicted.
//
// While the engine follows a plan, the plan says what is copied, and when it is copied back (see planlink.go).
//
// The engine follows the link in its own time: one queue for each direction. If the executor is a Copier it makes the
// copies; otherwise they are simulated.

const (
	hostAbsent = -1
	mostAhead  = 16 // storages that are copied back ahead of need at a time

	youngest = 16 // storages made last are not copied out: most of them are released soon
	dearest  = 4  // how much longer a copy may take than the operation that makes a storage

	shown        = 0.5 // the part of a copy back that is taken not to be hidden
	shownPlanned = 0.001
)

// A spilling is the state of the link.
type spilling struct {
	Link
	copier    Copier    // nil: copies are simulated
	hostLimit int64     // bytes; 0 means no limit
	outFree   int64     // when the link to the host is idle
	paused    bool      // nothing more is copied out
	look      int32     // the number of storages made before which it is in vain to look for one to copy out
	inFree    int64     // when the link to the device is idle
	near      []Storage // resident storages with a copy
	away      []Storage // storages that are on the host only
}

// A hostCopy is the state of a storage's copy on the host.
type hostCopy struct {
	place  int32 // in near or away; hostAbsent without a copy
	copied int64 // when the copy to the host is complete
	arrive int64 // when the copy back is complete
	unread bool  // it was copied back ahead of need and not read since
	back   bool  // it was away before
}

func (e *Engine) spills() bool { return e.link.BytesPerSecond > 0 }

// SetLink replaces the speed of the link, once it is measured.
func (e *Engine) SetLink(bytesPerSecond float64) { e.link.BytesPerSecond = bytesPerSecond }

// copies reports whether storages may be copied to the host now.
func (e *Engine) copies() bool {
	return e.spills() && !e.link.paused && (e.follow.plan == nil || e.follow.plan.copies)
}

// PauseCopies stops copies to the host, or allows them again.
func (e *Engine) PauseCopies(pause bool) { e.link.paused = pause }

// transfer returns the time of a copy in ns.
func (l *spilling) transfer(size int64) int64 {
	return l.LatencyNs + int64(float64(size)/l.BytesPerSecond*1e9)
}

// offload starts a copy to the host if the link is idle and memory is short, or will be by the plan.
func (e *Engine) offload() {
	if t := e.transfers(); t != nil {
		e.offloadPlanned(t)
		return
	}
	plenty := e.stats.Evictions == 0 && (e.budget == 0 || 2*e.stats.Used < e.budget)
	if !e.copies() || plenty || e.link.outFree > e.now || e.serial < e.link.look {
		return
	}
	best, rate := Storage(None), 0.0
	for _, s := range e.pool {
		st := &e.storages[s]
		if r := float64(st.cost) / float64(st.size); r > rate && e.worthCopy(st) {
			best, rate = s, r
		}
	}
	if best == None || !e.copyOut(best) {
		e.link.look = e.serial + youngest/2
	}
}

// worthCopy reports whether a storage may be copied out.
func (e *Engine) worthCopy(st *storage) bool {
	if st.host.place != hostAbsent || st.refs == 0 {
		return false
	}
	return e.serial-st.serial > youngest && dearest*st.cost >= e.link.transfer(st.size)
}

// remaking returns the time to compute a missing value and what is missing for it, or a time over the limit.
func (e *Engine) remaking(v Value, limit int64) int64 {
	o := e.values[v].op
	if o == None {
		return limit + 1
	}
	total := e.ops[o].cost
	for _, in := range e.ops[o].inputs {
		if total > limit {
			break
		}
		if !e.values[in].defined {
			total += max(e.remaking(in, limit-total), 1)
		}
	}
	return total
}

// copyOut starts a copy of a resident storage to the host, and reports whether it could.
func (e *Engine) copyOut(s Storage) bool {
	l, st := &e.link, &e.storages[s]
	if st.host.place != hostAbsent || l.hostLimit > 0 && e.stats.Host+st.size > l.hostLimit {
		return st.host.place != hostAbsent
	}
	if l.copier != nil && l.copier.CopyOut(s) != nil {
		return false // it can still be computed again
	}
	l.outFree = max(l.outFree, e.now) + l.transfer(st.size)
	st.host = hostCopy{place: int32(len(l.near)), copied: l.outFree}
	l.near = append(l.near, s)
	e.stats.Host += st.size
	e.stats.HostPeak = max(e.stats.HostPeak, e.stats.Host)
	e.stats.CopiedOut += st.size
	e.policy.changed(s)
	return true
}

// copyCost returns the cost of reading a storage again if it is evicted: at most what a copy from the host costs.
func (e *Engine) copyCost(cost int64, s *storage) int64 {
	if s.host.place == hostAbsent || s.host.copied > e.now || s.host.unread {
		return cost
	}
	part := shown
	if e.transfers() != nil && !s.host.back {
		part = shownPlanned
	}
	return min(cost, int64(part*float64(e.link.transfer(s.size))))
}

// later reports whether a storage is taken to be read after another: in the reverse order of their making.
func (e *Engine) later(a, b Storage) bool { return e.storages[a].serial < e.storages[b].serial }

// cleanVictim returns the storage with a copy on the host that is read last, or None.
func (e *Engine) cleanVictim() Storage {
	best := Storage(None)
	for _, s := range e.link.near {
		st := &e.storages[s]
		if st.pooled == None || st.host.copied > e.now || st.host.unread {
			continue
		}
		if best == None || e.later(s, best) {
			best = s
		}
	}
	return best
}

// save copies a victim without a copy to the host, if that and the way back take less time than to compute it again.
func (e *Engine) save(s Storage) {
	l, st := &e.link, &e.storages[s]
	if st.host.place != hostAbsent || st.refs == 0 || !e.copies() {
		return
	}
	time := l.transfer(st.size)
	if stall := max(l.outFree-e.now, 0) + time; st.cost > stall+time && e.copyOut(s) {
		e.stall(st.host.copied)
	}
}

// stall lets time pass.
func (e *Engine) stall(until int64) {
	if until > e.now {
		e.stats.StallNs += until - e.now
		e.now = until
	}
}

// move moves a storage with a copy from one list to the other.
func (e *Engine) move(s Storage, from, to *[]Storage) {
	e.unlist(s, from)
	e.storages[s].host.place = int32(len(*to))
	*to = append(*to, s)
}

func (e *Engine) unlist(s Storage, from *[]Storage) {
	list := *from
	last := list[len(list)-1]
	place := e.storages[s].host.place
	list[place] = last
	e.storages[last].host.place = place
	*from = list[:len(list)-1]
	e.storages[s].host.place = hostAbsent
}

// left notes that a storage is not in device memory any more.
func (e *Engine) leftDevice(s Storage) {
	if st := &e.storages[s]; st.host.place != hostAbsent {
		e.move(s, &e.link.near, &e.link.away)
		st.host.unread = false
	}
}

// dropHost gives back the copy of a storage.
func (e *Engine) dropHost(s Storage) {
	st := &e.storages[s]
	if st.host.place == hostAbsent {
		return
	}
	list := &e.link.away
	if st.resident {
		list = &e.link.near
	}
	e.unlist(s, list)
	e.stats.Host -= st.size
	if e.link.copier != nil {
		e.link.copier.DropHost(s)
	}
}

// restore makes a missing value resident from the host, if it has a copy there and computing it is not faster. It
// reports false if the value must be computed.
func (e *Engine) restore(v Value) (bool, error) {
	s := e.values[v].storage
	st := &e.storages[s]
	if !e.values[v].ran || st.resident || st.host.place == hostAbsent {
		return false, nil
	}
	l := &e.link
	arrives := max(l.inFree, st.host.copied, e.now) + l.transfer(st.size)
	if e.remaking(v, arrives-e.now) < arrives-e.now {
		return false, nil
	}
	if err := e.room(st.size, ""); err != nil {
		return false, err
	}
	return true, e.copyIn(s)
}

// copyIn starts the copy of a storage from the host. There is room for it.
func (e *Engine) copyIn(s Storage) error {
	l := &e.link
	e.stats.Used += e.storages[s].size // the executor may call Reclaim
	if l.copier != nil {
		if err := l.copier.CopyIn(s); err != nil {
			e.stats.Used -= e.storages[s].size
			return err
		}
	}
	st := &e.storages[s]
	e.stats.Used -= st.size
	e.use(st.size)
	l.inFree = max(l.inFree, st.host.copied, e.now) + l.transfer(st.size)
	st.host.arrive, st.host.back, st.resident = l.inFree, true, true
	e.stats.CopiedIn += st.size
	for _, v := range st.values {
		e.values[v].defined = e.values[v].ran
	}
	e.move(s, &l.away, &l.near)
	e.policy.restored(s, true)
	e.enter(s)
	return nil
}

// arrived waits for the copies of inputs that are on their way. If they are read by the program, and not to compute
// something again, it copies back ahead what is read next.
func (e *Engine) arrived(inputs []Value, ahead bool) error {
	if !e.spills() {
		return nil
	}
	trigger := Storage(None)
	for _, v := range inputs {
		s := e.values[v].storage
		st := &e.storages[s]
		if st.host.place == hostAbsent || !st.host.back {
			continue
		}
		e.stall(st.host.arrive)
		e.follow.read(s)
		st.host.unread = false
		if e.link.copier != nil {
			if err := e.link.copier.Wait(s); err != nil {
				return err
			}
		}
		if trigger == None || e.storages[s].serial < e.storages[trigger].serial {
			trigger = s
		}
	}
	switch t := e.transfers(); {
	case !ahead:
	case t != nil:
		e.prefetchPlanned(t)
	case trigger != None:
		e.prefetch(trigger)
	}
	return nil
}

// roomBefore makes room for a storage by evicting storages with copies that are read after it.
func (e *Engine) roomBefore(s Storage) bool {
	for e.stats.Used+e.storages[s].size > e.budget {
		v := e.cleanVictim()
		if v == None || !e.later(v, s) {
			return false
		}
		e.evict(v)
	}
	return true
}

// prefetch copies storages back that are read next after the one that was just read, while there is room.
func (e *Engine) prefetch(after Storage) {
	l := &e.link
	for range mostAhead {
		best := Storage(None)
		for _, s := range l.away {
			if e.storages[s].refs > 0 && e.later(s, after) && (best == None || e.later(best, s)) {
				best = s
			}
		}
		if best == None || e.budget == 0 {
			return
		}
		if l.inFree > e.now+mostAhead*l.transfer(e.storages[best].size) || !e.roomBefore(best) {
			return
		}
		if e.copyIn(best) != nil {
			return // it is tried again when it is read
		}
		e.storages[best].host.unread = true
		after = best
	}
}
