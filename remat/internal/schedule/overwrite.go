package schedule

// overwrite prepares an operation that changes storages in place: results of their old contents are made resident and
// stay, since they cannot be made again.
func (e *Engine) overwrite(o Op, c Call) error {
	for _, out := range c.Outputs {
		if out.Alias < 0 || !out.Overwrite {
			continue
		}
		s := e.values[c.Inputs[out.Alias]].storage
		var stale []Value
		for _, v := range e.storages[s].values {
			if e.values[v].op != o {
				stale = append(stale, v)
			}
		}
		if err := e.keepReaders(o, s, stale); err != nil {
			return err
		}
	}
	return nil
}

// keepReaders makes what was computed from values resident for good, except for what their writer makes.
func (e *Engine) keepReaders(writer Op, overwritten Storage, values []Value) error {
	var severed []Op
	seen := map[Op]bool{writer: true}
	for len(values) > 0 {
		v := values[len(values)-1]
		values = values[:len(values)-1]
		for _, u := range e.values[v].users {
			if seen[u.op] {
				continue
			}
			seen[u.op] = true
			severed = append(severed, u.op)
			for _, w := range e.ops[u.op].outputs {
				s := e.values[w].storage
				if e.storages[s].refs == 0 && s != overwritten {
					values = append(values, w) // what was made of it is kept instead
				}
			}
		}
	}
	return e.keep(severed, overwritten)
}

// keep makes the referenced results of operations resident for good, and forgets how they are made.
func (e *Engine) keep(ops []Op, except Storage) error {
	var locked []Value
	defer func() {
		for _, v := range locked {
			e.Unlock(v)
		}
	}()
	for _, o := range ops {
		for _, v := range e.ops[o].outputs {
			if s := e.values[v].storage; e.storages[s].refs == 0 || s == except && !e.needed(v) {
				continue
			}
			if err := e.Lock(v); err != nil {
				return err
			}
			locked = append(locked, v)
		}
	}
	for _, v := range locked {
		e.fix(e.values[v].storage)
	}
	for _, o := range ops {
		e.sever(o)
	}
	return nil
}

// age marks the values whose storage an operation has overwritten: no later operation may read them.
func (e *Engine) age(o Op, c Call) {
	for _, out := range c.Outputs {
		if out.Alias < 0 || !out.Overwrite {
			continue
		}
		for _, v := range e.storages[e.values[c.Inputs[out.Alias]].storage].values {
			e.values[v].stale = e.values[v].op != o
		}
	}
}
