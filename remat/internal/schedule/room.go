package schedule

// room evicts storages until size more bytes fit into the budget.
func (e *Engine) room(size int64, name string) error {
	if e.budget == 0 {
		return nil
	}
	for e.stats.Used+size > e.budget {
		s := e.victim(e.stats.Used + size - e.budget)
		if s == None {
			return &NoMemory{Name: name, Need: size, Used: e.stats.Used, Budget: e.budget}
		}
		e.evict(s)
	}
	return nil
}

// Reclaim evicts storages of at least size bytes, or as many as can be, and returns their bytes. Allocators call it
// when they are out of memory. An Executor may call it during Compute.
func (e *Engine) Reclaim(size int64) int64 {
	before := e.stats.EvictedBytes
	for freed := int64(0); freed < size; freed = e.stats.EvictedBytes - before {
		s := e.victim(size - freed)
		if s == None {
			break
		}
		e.evict(s)
	}
	return e.stats.EvictedBytes - before
}

// victim chooses a storage to evict, or None.
func (e *Engine) victim(need int64) Storage {
	if len(e.pool) > 0 {
		e.stats.Decisions++
		if s := e.policy.victim(need); s != None {
			return s
		}
	}
	if !e.policy.relentless() {
		return None
	}
	for _, o := range e.waiting {
		for _, v := range e.ops[o].inputs {
			s := e.values[v].storage
			if st := &e.storages[s]; st.resident && !st.fixed && st.size > 0 && st.locks == st.soft {
				return s
			}
		}
	}
	return None
}

// evict drops a storage for room.
func (e *Engine) evict(s Storage) {
	if e.spills() {
		e.save(s)
		if host := &e.storages[s].host; host.place != hostAbsent {
			e.stall(host.copied)
		}
	}
	e.stats.Evictions++
	e.stats.EvictedBytes += e.storages[s].size
	e.drop(s)
}

// drop gives back the memory of a storage.
func (e *Engine) drop(s Storage) {
	e.lose(s)
	e.x.Drop(s)
}

// lose notes that a storage has no memory any more.
func (e *Engine) lose(s Storage) {
	st := &e.storages[s]
	e.leave(s)
	st.resident = false
	e.leftDevice(s)
	for _, v := range st.values {
		e.values[v].defined = false
	}
	e.stats.Used -= st.size
	e.policy.evicted(s)
}

// lock prevents the eviction of a storage.
func (e *Engine) lock(s Storage) {
	e.storages[s].locks++
	e.leave(s)
}

func (e *Engine) unlock(s Storage) {
	e.storages[s].locks--
	e.enter(s)
}

// enter makes a storage evictable, if it is.
func (e *Engine) enter(s Storage) {
	st := &e.storages[s]
	if !st.resident || st.locks > 0 || st.fixed || st.pooled != None {
		return
	}
	if st.refs == 0 && e.policy.eager(s) && e.useless(s) {
		e.drop(s)
		return
	}
	if st.size == 0 {
		return
	}
	st.pooled = int32(len(e.pool))
	e.pool = append(e.pool, s)
	e.policy.entered(s)
}

// leave makes a storage not evictable.
func (e *Engine) leave(s Storage) {
	st := &e.storages[s]
	if st.pooled == None {
		return
	}
	last := e.pool[len(e.pool)-1]
	e.pool[st.pooled] = last
	e.storages[last].pooled = st.pooled
	e.pool = e.pool[:len(e.pool)-1]
	st.pooled = None
	e.policy.left(s)
}

// useless reports whether nothing reads a storage without references any more.
func (e *Engine) useless(s Storage) bool {
	for _, v := range e.storages[s].values {
		if len(e.values[v].users) > 0 {
			return false
		}
	}
	return true
}

// Lock makes a value resident and keeps it so until Unlock. Locks are counted.
func (e *Engine) Lock(v Value) error {
	e.tries = 0
	e.setBase(v, false)
	if err := e.define(v); err != nil {
		return err
	}
	e.lock(e.values[v].storage) // first: arrived may evict
	if err := e.arrived([]Value{v}, true); err != nil {
		e.Unlock(v)
		return err
	}
	return nil
}

// define makes a value resident.
func (e *Engine) define(v Value) error {
	if e.values[v].defined {
		return nil
	}
	if copied, err := e.restore(v); copied || err != nil {
		return err
	}
	return e.produce(e.values[v].op, true)
}

// Unlock undoes one Lock.
func (e *Engine) Unlock(v Value) { e.unlock(e.values[v].storage) }

// fix makes a resident storage one that is never evicted.
func (e *Engine) fix(s Storage) {
	st := &e.storages[s]
	if st.fixed {
		return
	}
	e.leave(s)
	e.dropHost(s)
	st.fixed = true
	e.stats.Fixed += st.size
}
