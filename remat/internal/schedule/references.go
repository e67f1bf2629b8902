package schedule

// Retain adds a reference to a value.
func (e *Engine) Retain(v Value) {
	e.record.retain(v)
	e.refer(v, 1)
}

// Release removes a reference. A storage without references is dropped at once, if the policy does not keep it to make
// evicted storages of it; it is made again if an operation that is to be repeated reads it.
func (e *Engine) Release(v Value) {
	if e.values[v].refs == 0 {
		panic("remat: a value was released too often")
	}
	e.record.release(v)
	e.unrefer(v)
	e.forget()
}

// unrefer removes a reference; values that nothing needs are forgotten by the next forget.
func (e *Engine) unrefer(v Value) {
	e.refer(v, -1)
	s := e.values[v].storage
	if e.values[v].refs == 0 && len(e.values[v].users) == 0 {
		e.dying = append(e.dying, v)
	}
	if st := &e.storages[s]; st.wanted == 0 {
		e.policy.released(s)
	}
	if st := &e.storages[s]; st.refs == 0 {
		if st.resident && !st.fixed && st.locks == 0 && e.policy.eager(s) {
			e.drop(s)
		}
	}
}

// refer changes the number of references to a value.
func (e *Engine) refer(v Value, by int32) {
	value := &e.values[v]
	value.refs += by
	e.storages[value.storage].refs += by
	if !value.base {
		e.want(value.storage, by)
	}
}

// want changes the number of references to a storage through which the program may read it.
func (e *Engine) want(s Storage, by int32) {
	st := &e.storages[s]
	st.wanted += by
	if st.wanted == by && st.refs > by {
		e.policy.changed(s)
	}
}

// read notes that an operation reads a value. A value that is read only once, to make views of it, is their base: it is
// held by what is noted for derivatives, but the program reads the views. Where a program releases them all and then
// makes views of the base again, that is wrong, and so it is of other values that operations of this name read.
func (e *Engine) read(v Value, name string, views bool) {
	value := &e.values[v]
	if value.base && views && e.storages[value.storage].wanted == 0 {
		e.reviewed[name] = true
	}
	e.setBase(v, views && len(value.users) == 0 && !e.reviewed[name])
}

func (e *Engine) setBase(v Value, base bool) {
	value := &e.values[v]
	if base == value.base {
		return
	}
	value.base = base
	if base {
		e.want(value.storage, -value.refs)
	} else {
		e.want(value.storage, value.refs)
	}
}

// forget removes the records of values that nothing needs, of operations all whose results are such, and so on for
// their inputs.
func (e *Engine) forget() {
	for len(e.dying) > 0 {
		v := e.dying[len(e.dying)-1]
		e.dying = e.dying[:len(e.dying)-1]
		if e.values[v].storage == None || e.needed(v) {
			continue
		}
		if o := e.values[v].op; o == None {
			e.forgetValue(v)
		} else if !e.neededOp(o) {
			e.forgetOp(o)
		}
	}
}

func (e *Engine) needed(v Value) bool { return e.values[v].refs > 0 || len(e.values[v].users) > 0 }

func (e *Engine) neededOp(o Op) bool {
	for _, v := range e.ops[o].outputs {
		if e.needed(v) {
			return true
		}
	}
	return false
}

func (e *Engine) forgetOp(o Op) {
	outputs, cost := e.ops[o].outputs, e.ops[o].cost
	e.eachStorage(o, func(s Storage) { e.storages[s].cost -= cost })
	e.release(o)
	for _, v := range outputs {
		e.forgetValue(v)
	}
}

// sever makes the outputs of an operation independent of it: it is not repeated any more.
func (e *Engine) sever(o Op) {
	for _, v := range e.ops[o].outputs {
		e.values[v].op = None
		if !e.needed(v) {
			e.dying = append(e.dying, v)
		}
	}
	e.release(o)
}

// release removes the record of an operation, which no longer needs its inputs.
func (e *Engine) release(o Op) {
	for i, v := range e.ops[o].inputs {
		users := e.values[v].users
		slot, last := e.ops[o].slots[i], users[len(users)-1]
		users[slot] = last
		e.ops[last.op].slots[last.arg] = slot
		e.values[v].users = users[:len(users)-1]
		if !e.needed(v) {
			e.dying = append(e.dying, v)
		}
	}
	e.ops[o] = op{}
	e.freeOps = append(e.freeOps, o)
	e.x.ForgetOp(o)
}

// forgetValue removes a value, and its storage if it was the last.
func (e *Engine) forgetValue(v Value) {
	s := e.values[v].storage
	st := &e.storages[s]
	for i, other := range st.values {
		if other == v {
			last := len(st.values) - 1
			st.values[i] = st.values[last]
			st.values = st.values[:last]
			break
		}
	}
	e.values[v].op, e.values[v].storage = None, None
	e.record.forget(v)
	e.freeValues = append(e.freeValues, v)
	if len(st.values) > 0 {
		return
	}
	if st.resident {
		e.drop(s)
	}
	e.dropHost(s)
	if st.fixed {
		e.stats.Fixed -= st.size
	}
	e.policy.forgotten(s)
	e.follow.forget(s)
	e.freeStorages = append(e.freeStorages, s)
	e.x.ForgetStorage(s)
}
