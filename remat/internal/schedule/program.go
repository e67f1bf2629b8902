package schedule

// A Program is a sequence of announcements. Its values are numbered in the order in which they appear: a constant is
// one, a call makes one for each output.
type Program struct {
	Events []Event
	Values int
}

// An Event is an announcement of a program.
type Event struct {
	Kind  EventKind
	Value Value // of a constant, or retained or released
	Size  int64 // of a constant
	Call  *Call // with values of the program
	First Value // the number of the first output of a call
}

// An EventKind says what an event announces.
type EventKind uint8

// The kinds of events.
const (
	Constant EventKind = iota
	Calling
	Retain
	Release
)

// Constant appends a constant and returns its number.
func (p *Program) Constant(size int64) Value {
	v := Value(p.Values)
	p.Values++
	p.Events = append(p.Events, Event{Kind: Constant, Value: v, Size: size})
	return v
}

// Call appends an operation and returns the number of its first output.
func (p *Program) Call(c Call) Value {
	first := Value(p.Values)
	p.Values += len(c.Outputs)
	p.Events = append(p.Events, Event{Kind: Calling, Call: &c, First: first})
	return first
}

// Retain appends that a value has one more reference.
func (p *Program) Retain(v Value) { p.Events = append(p.Events, Event{Kind: Retain, Value: v}) }

// Release appends that a value has one reference less.
func (p *Program) Release(v Value) { p.Events = append(p.Events, Event{Kind: Release, Value: v}) }

// Run announces a program to an engine. In the end all values that still have references are made resident.
func (p *Program) Run(e *Engine) error {
	r := &player{e: e, ids: make([]Value, p.Values), refs: make([]int32, p.Values)}
	for i := range p.Events {
		if err := r.play(&p.Events[i]); err != nil {
			return err
		}
	}
	for v, refs := range r.refs {
		if refs > 0 {
			if err := e.Lock(r.ids[v]); err != nil {
				return err
			}
		}
	}
	return nil
}

// A player announces events to an engine.
type player struct {
	e      *Engine
	ids    []Value // of the values of the program
	refs   []int32
	inputs []Value
}

func (r *player) play(ev *Event) error {
	switch ev.Kind {
	case Constant:
		v, err := r.e.Constant(ev.Size)
		if err != nil {
			return err
		}
		r.ids[ev.Value], r.refs[ev.Value] = v, 1
	case Calling:
		call := *ev.Call
		r.inputs = r.inputs[:0]
		for _, v := range call.Inputs {
			r.inputs = append(r.inputs, r.ids[v])
		}
		call.Inputs = r.inputs
		_, outputs, err := r.e.Call(call)
		if err != nil {
			return err
		}
		for i, v := range outputs {
			r.ids[int(ev.First)+i], r.refs[int(ev.First)+i] = v, 1
		}
	case Retain:
		r.e.Retain(r.ids[ev.Value])
		r.refs[ev.Value]++
	case Release:
		r.e.Release(r.ids[ev.Value])
		r.refs[ev.Value]--
	}
	return nil
}
