package schedule

// Begin announces an operation that the caller runs itself. Its inputs are made resident and locked until End or Abort.
func (e *Engine) Begin(name string, inputs []Value) error {
	e.tries = 0
	e.follow.next(e, name, inputs)
	for i, v := range inputs {
		s := e.values[v].storage
		e.policy.reads(s)
		e.storages[s].accessed, e.storages[s].used = e.now, e.programTime()
		e.policy.touched(s)
		if err := e.Lock(v); err != nil {
			for _, w := range inputs[:i] {
				e.Unlock(w)
			}
			return err
		}
	}
	e.begun = append(e.begun[:0], inputs...)
	if err := e.arrived(inputs, true); err != nil {
		e.Abort()
		return err
	}
	return nil
}

// End enters the operation of the last Begin, which has run: its outputs are resident.
func (e *Engine) End(c Call) (Op, []Value) {
	o := e.announce(c)
	e.follow.made(e, o)
	e.use(e.ops[o].size)
	e.computed(o, false)
	outputs := e.ops[o].outputs
	e.Abort()
	e.record.call(e, c, outputs)
	if c.Fixed || len(outputs) == 0 {
		for _, v := range outputs {
			e.fix(e.values[v].storage)
		}
		e.sever(o)
		e.forget()
		return None, outputs
	}
	return o, outputs
}

// Abort ends the operation of the last Begin without a result.
func (e *Engine) Abort() {
	for _, v := range e.begun {
		e.Unlock(v)
	}
	e.begun = e.begun[:0]
}

// Overwritten says that the memory of a storage belongs to another one now.
func (e *Engine) Overwritten(v Value) { e.lose(e.values[v].storage) }

// Fixed reports whether a value is never evicted.
func (e *Engine) Fixed(v Value) bool { return e.storages[e.values[v].storage].fixed }
