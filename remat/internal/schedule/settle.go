package schedule

// Settle makes everything resident for good that was computed from a value, so that its memory can be overwritten: the
// results are not made again, and not evicted.
func (e *Engine) Settle(v Value) error {
	s := e.values[v].storage
	ops := e.readers(append([]Value(nil), e.storages[s].values...), s)
	var locked []Value
	defer func() {
		for _, v := range locked {
			e.Unlock(v)
		}
	}()
	for _, o := range ops {
		for _, v := range e.ops[o].outputs {
			if t := e.values[v].storage; t == s || e.storages[t].refs == 0 {
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

// readers returns the operations that read values, and those that read results of them to which the program has no
// reference: these are not kept, but what was made of them.
func (e *Engine) readers(values []Value, of Storage) []Op {
	var ops []Op
	seen := map[Op]bool{}
	for len(values) > 0 {
		v := values[len(values)-1]
		values = values[:len(values)-1]
		for _, u := range e.values[v].users {
			if seen[u.op] {
				continue
			}
			seen[u.op] = true
			ops = append(ops, u.op)
			for _, w := range e.ops[u.op].outputs {
				if s := e.values[w].storage; e.storages[s].refs == 0 && s != of {
					values = append(values, w)
				}
			}
		}
	}
	return ops
}
