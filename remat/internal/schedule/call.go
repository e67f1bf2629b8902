package schedule

// Call runs an operation. Its inputs are made resident, room is made for its outputs, and the executor computes. Each
// output has one reference. After an error nothing has changed, except that storages may have been evicted or made
// again.
func (e *Engine) Call(c Call) (Op, []Value, error) {
	e.follow.next(e, c.Name, c.Inputs)
	o := e.announce(c)
	e.follow.made(e, o)
	e.tries = 0
	err := e.produce(o, false)
	outputs := e.ops[o].outputs
	if err != nil {
		for _, v := range outputs {
			e.unrefer(v)
		}
		e.forget()
		for _, v := range c.Inputs {
			if len(e.values[v].users) == 0 {
				e.setBase(v, false)
			}
		}
		return None, nil, err
	}
	if c.Fixed {
		for _, v := range outputs {
			e.fix(e.values[v].storage)
		}
		e.sever(o)
		e.record.call(e, c, outputs)
		e.forget()
		return None, outputs, nil
	}
	e.record.call(e, c, outputs)
	return o, outputs, nil
}

// announce enters an operation and its outputs, which are not resident yet.
func (e *Engine) announce(c Call) Op {
	o := e.newOp(op{
		name: c.Name, inputs: append([]Value(nil), c.Inputs...), slots: make([]int32, len(c.Inputs)),
		outputs: make([]Value, len(c.Outputs)), cost: c.Cost, scratch: c.Scratch, fixed: c.Fixed, work: c.Work,
	})
	record := &e.ops[o]
	views := c.views()
	for i, v := range c.Inputs {
		e.read(v, c.Name, views)
		record.slots[i] = int32(len(e.values[v].users))
		e.values[v].users = append(e.values[v].users, user{o, int32(i)})
	}
	for i, out := range c.Outputs {
		v := value{op: o, index: int32(i), alias: out.Alias >= 0}
		if v.alias {
			v.storage = e.values[c.Inputs[out.Alias]].storage
		} else {
			v.storage = e.newStorage(out.Size)
			record.size += out.Size
		}
		id := e.newValue(v)
		record.outputs[i] = id
		s := &e.storages[v.storage]
		s.values = append(s.values, id)
		e.refer(id, 1)
	}
	e.eachStorage(o, func(s Storage) {
		e.storages[s].cost += c.Cost
		e.policy.added(s)
	})
	return o
}

// views reports whether an operation only makes views.
func (c *Call) views() bool {
	for _, out := range c.Outputs {
		if out.Alias < 0 {
			return false
		}
	}
	return len(c.Outputs) > 0
}

// produce makes the inputs of an operation resident, makes room and runs it.
func (e *Engine) produce(o Op, again bool) error {
	if err := e.try(o); err != nil {
		return err
	}
	inputs := e.ops[o].inputs
	for _, v := range inputs {
		s := e.values[v].storage
		e.storages[s].accessed = e.now
		if !again {
			e.policy.reads(s)
			e.storages[s].used = e.programTime()
		}
		e.policy.touched(s)
		e.lock(s)
	}
	err := e.makeInputs(o, inputs)
	if err == nil {
		err = e.arrived(inputs, !again)
	}
	if err == nil {
		err = e.room(e.ops[o].size+e.ops[o].scratch, e.ops[o].name)
	}
	if err == nil {
		err = e.compute(o, again)
	}
	for _, v := range inputs {
		e.unlock(e.values[v].storage)
	}
	return err
}

// try counts an execution or a copy back within a call of a user. Inputs that evict one another end in an error.
func (e *Engine) try(o Op) error {
	if e.tries++; e.tries > 1000+10*len(e.ops) {
		return &NoMemory{Name: e.ops[o].name, Need: e.ops[o].size + e.ops[o].scratch, Used: e.stats.Used, Budget: e.budget}
	}
	return nil
}

// makeInputs makes the missing inputs of an operation. Other inputs may be evicted for one of them, if nothing else
// can: then they are made again.
func (e *Engine) makeInputs(o Op, inputs []Value) error {
	for {
		missing := e.missing(inputs)
		if missing == None {
			return nil
		}
		if err := e.try(o); err != nil {
			return err
		}
		e.soften(inputs, 1)
		e.waiting = append(e.waiting, o)
		err := e.define(missing)
		e.waiting = e.waiting[:len(e.waiting)-1]
		e.soften(inputs, -1)
		if err != nil {
			return err
		}
	}
}

// missing returns the input that is to be made first, or None.
func (e *Engine) missing(inputs []Value) Value {
	for _, v := range inputs {
		if !e.values[v].defined {
			return v
		}
	}
	return None
}

func (e *Engine) soften(inputs []Value, by int32) {
	for _, v := range inputs {
		e.storages[e.values[v].storage].soft += by
	}
}

// compute runs an operation whose inputs are resident and for whose outputs there is room.
func (e *Engine) compute(o Op, again bool) error {
	op := &e.ops[o]
	r := &e.run
	*r = Run{
		Op: o, Work: op.work, Inputs: op.inputs, Outputs: op.outputs,
		Storages: r.Storages[:0], Keep: r.Keep[:0], Again: again,
	}
	double := op.scratch
	for _, v := range op.outputs {
		s := &e.storages[e.values[v].storage]
		keep := !s.resident
		if !keep && !e.values[v].alias {
			double += s.size
		}
		e.lock(e.values[v].storage) // the executor may call Reclaim
		r.Storages, r.Keep = append(r.Storages, e.values[v].storage), append(r.Keep, keep || !e.values[v].defined)
	}
	e.use(op.size + op.scratch)
	cost, err := e.x.Compute(r)
	op = &e.ops[o]
	if err == nil {
		e.use(-double)
		if cost != 0 {
			e.price(o, cost)
		}
		e.computed(o, again)
	} else {
		e.use(-op.size - op.scratch)
	}
	for _, v := range e.ops[o].outputs {
		e.unlock(e.values[v].storage)
	}
	return err
}

// computed enters the results of an execution.
func (e *Engine) computed(o Op, again bool) {
	op := &e.ops[o]
	e.now += op.cost
	e.stats.ComputeNs += op.cost
	if again {
		e.stats.RecomputeNs += op.cost
		e.stats.Recomputes++
	}
	for _, v := range op.outputs {
		value := &e.values[v]
		value.defined, value.ran = true, true
		s := &e.storages[value.storage]
		if !again {
			s.accessed, s.used = e.now, e.programTime()
			e.policy.touched(value.storage)
		}
		if s.resident {
			continue
		}
		s.resident = true
		if s.host.place != hostAbsent {
			e.move(value.storage, &e.link.away, &e.link.near)
		}
		e.policy.restored(value.storage, again)
		e.enter(value.storage)
	}
	e.offload()
}
