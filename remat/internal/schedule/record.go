package schedule

import "slices"

// A recorder notes what is announced to an engine.
type recorder struct {
	program *Program
	numbers map[Value]Value // of the engine's values that the program has named
}

// Record starts the recording of what is announced from here on. What was there before counts as constants.
func (e *Engine) Record() { e.record = &recorder{&Program{}, map[Value]Value{}} }

// Recorded ends the recording, and returns nil if there is none.
func (e *Engine) Recorded() *Program {
	r := e.record
	e.record = nil
	if r == nil {
		return nil
	}
	return r.program
}

// value returns the number of a value in the program.
func (r *recorder) value(e *Engine, v Value) Value {
	n, ok := r.numbers[v]
	if !ok {
		n = r.program.Constant(e.storages[e.values[v].storage].size)
		r.numbers[v] = n
		last := len(r.program.Events) - 1 // it was there from the beginning
		r.program.Events = slices.Insert(r.program.Events[:last], 0, r.program.Events[last])
	}
	return n
}

func (r *recorder) constant(e *Engine, v Value) {
	if r != nil {
		r.numbers[v] = r.program.Constant(e.storages[e.values[v].storage].size)
	}
}

func (r *recorder) call(e *Engine, c Call, outputs []Value) {
	if r == nil {
		return
	}
	inputs := make([]Value, len(c.Inputs))
	for i, v := range c.Inputs {
		inputs[i] = r.value(e, v)
	}
	c.Inputs, c.Work = inputs, nil
	first := r.program.Call(c)
	for i, v := range outputs {
		r.numbers[v] = first + Value(i)
	}
}

func (r *recorder) retain(v Value) {
	if r == nil {
		return
	}
	if n, ok := r.numbers[v]; ok {
		r.program.Retain(n)
	}
}

func (r *recorder) release(v Value) {
	if r == nil {
		return
	}
	if n, ok := r.numbers[v]; ok {
		r.program.Release(n)
	}
}

// forget notes that the id of a value may be used for another.
func (r *recorder) forget(v Value) {
	if r != nil {
		delete(r.numbers, v)
	}
}
