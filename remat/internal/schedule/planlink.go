package schedule

// While the engine follows a plan with transfers, it copies by that instead of by its own guesses.

// transfers returns the copies of the plan that the engine follows, or nil.
func (e *Engine) transfers() *transfers {
	if plan := e.plan(); plan != nil && e.copies() {
		return plan.transfers
	}
	return nil
}

// offloadPlanned starts the next copies of a plan to the host. One may wait for another. The results of the operation
// that the program just ran wait for the next one: after Begin, the executor does not have them yet.
func (e *Engine) offloadPlanned(t *transfers) {
	for f := &e.follow; f.out < len(t.out); f.out++ {
		n := t.out[f.out]
		s := f.bound[n]
		if s == None || f.plan.makers[n] >= f.at {
			return
		}
		st := &e.storages[s]
		if f.numberOf(s) != n || !st.resident || st.fixed || st.refs == 0 {
			continue
		}
		if st.locks > 0 || e.link.outFree > e.now+e.link.transfer(st.size) {
			return
		}
		e.copyOut(s)
	}
}

// prefetchPlanned starts the copies of a plan that have to begin now for their storages to be there in time.
func (e *Engine) prefetchPlanned(t *transfers) {
	for f := &e.follow; f.back < len(t.back); f.back++ {
		n := t.back[f.back]
		s := f.bound[n]
		if f.plan.clock[f.at+1] <= t.start[f.back] {
			return
		}
		if s == None || f.numberOf(s) != n || e.storages[s].host.place == hostAbsent {
			continue
		}
		st := &e.storages[s]
		if !st.resident && (e.room(st.size, "") != nil || e.copyIn(s) != nil) {
			return
		}
		st.host.unread = true
	}
}

// leaving reports whether a plan copies a storage to the host whose copy is not complete.
func (e *Engine) leaving(s Storage) bool {
	t, n := e.transfers(), e.follow.numberOf(s)
	host := &e.storages[s].host
	return t != nil && n != None && t.moved[n] && !host.back && (host.place == hostAbsent || host.copied > e.now)
}

// read notes when a storage that was copied back is read.
func (f *following) read(s Storage) {
	if n := f.numberOf(s); f.plan != nil && f.needed != nil && n != None && f.at >= 0 {
		f.needed[n] = min(f.needed[n], f.plan.clock[f.at])
	}
}
