package schedule

// parents calls f for the storages that the operations of a storage read.
func (e *Engine) parents(s Storage, f func(Storage)) {
	for _, v := range e.storages[s].values {
		o := e.values[v].op
		if o == None {
			continue
		}
		for _, in := range e.ops[o].inputs {
			if p := e.values[in].storage; p != s {
				f(p)
			}
		}
	}
}

// children calls f for the storages that operations make of a storage.
func (e *Engine) children(s Storage, f func(Storage)) {
	for _, v := range e.storages[s].values {
		for _, u := range e.values[v].users {
			for _, out := range e.ops[u.op].outputs {
				if c := e.values[out].storage; c != s {
					f(c)
				}
			}
		}
	}
}
