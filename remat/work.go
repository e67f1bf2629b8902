package remat

import (
	"fmt"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
	"github.com/ashlar-go/ashlar/tensor"
)

// A work is an operation that can be run again.
type work struct {
	Op
	inputs  []operand
	changes []*variable // whose contents it changes in place; nil after the first run
	states  []uint64    // offsets of the generators before the first run
	outputs []output    // of the storages in the schedule, in its order
	key     uint64      // of its cost
	bytes   int64       // that it reads and makes
	op      schedule.Op // None before the first run, and once the schedule has forgotten it
}

// An operand is an input: a view of a content.
type operand struct {
	content *content
	view    view
}

// An output says where a storage that an operation makes comes from: a result of the function, or a changed input.
type output struct {
	result  int
	changed *content // not nil: the changed copy of this input
}

// values returns the inputs as the schedule knows them.
func (w *work) values() []schedule.Value {
	values := make([]schedule.Value, len(w.inputs))
	for i, o := range w.inputs {
		values[i] = o.content.value
	}
	return values
}

// memory returns the storages of the inputs, which are resident, for work that changes some of them.
func (w *work) memory(r *core, changes []*variable) ([]*tensor.Storage, error) {
	for _, v := range changes {
		if err := r.ready(v.now, true); err != nil {
			return nil, err
		}
	}
	data := make([]*tensor.Storage, len(w.inputs))
	for i, o := range w.inputs {
		if err := r.ready(o.content, false); err != nil {
			return nil, err
		}
		data[i] = o.content.data
	}
	return data, nil
}

// invoke calls the function on inputs with the given storages, and use with the results, which are valid during that
// call.
func (w *work) invoke(p *tensor.Place, data []*tensor.Storage, use func(results []*tensor.Tensor) error) error {
	s := p.Scope()
	defer s.Close()
	in := make([]*tensor.Tensor, len(w.inputs))
	for i, o := range w.inputs {
		x, err := o.view.of(s.Place, data[i])
		if err != nil {
			return err
		}
		in[i] = x
	}
	results, err := w.Func(s.Place, in)
	if err != nil {
		return err
	}
	for i, t := range results {
		if t == nil {
			return fmt.Errorf("result %d of %d is the undefined tensor", i, len(results))
		}
	}
	return use(results)
}

// An executor runs operations again for the schedule, and drops memory.
type executor core

// Compute implements schedule.Executor.
func (e *executor) Compute(run *schedule.Run) (int64, error) {
	w := run.Work.(*work)
	defer w.restore(w.rewind())
	data, release, err := w.copyChanged((*core)(e))
	if err != nil {
		return 0, err
	}
	defer release()
	timed := e.costs.begin(w.key)
	defer timed.cancel() // if the function fails or panics
	err = w.invoke(e.place, data, func(results []*tensor.Tensor) error { return e.keep(run, w, data, results) })
	if err != nil {
		return 0, err
	}
	timed.end(w, w.bytes)
	return timed.known(), nil
}

// keep takes the outputs that the schedule asks for.
func (e *executor) keep(run *schedule.Run, w *work, data []*tensor.Storage, results []*tensor.Tensor) error {
	made := make([]*tensor.Storage, len(w.outputs))
	for i, o := range w.outputs {
		switch {
		case o.changed != nil:
			for j, in := range w.inputs {
				if in.content == o.changed {
					made[i] = data[j]
				}
			}
		case o.result < len(results):
			made[i] = results[o.result].Storage()
		}
		if c := e.contents[run.Storages[i]]; made[i] == nil || made[i].BlockSize() > 0 != (c.size > 0) {
			return fmt.Errorf("%s made other results than at first: its function must depend on its inputs only", w.Name)
		}
	}
	for i, s := range made {
		if run.Keep[i] {
			e.contents[run.Storages[i]].data = s.Retain()
		}
	}
	return nil
}

// copyChanged returns the storages of the inputs, with copies of those that the function changes, and a function that
// releases these.
func (w *work) copyChanged(r *core) (data []*tensor.Storage, release func(), err error) {
	if data, err = w.memory(r, nil); err != nil {
		return nil, nil, err
	}
	var copies []*tensor.Tensor
	release = func() {
		for _, c := range copies {
			c.Release()
		}
	}
	for _, o := range w.outputs {
		if o.changed == nil {
			continue
		}
		c, err := copyOf(r.place, o.changed.data)
		if err != nil {
			release()
			return nil, nil, err
		}
		copies = append(copies, c)
		for i, in := range w.inputs {
			if in.content == o.changed {
				data[i] = c.Storage()
			}
		}
	}
	return data, release, nil
}

// copyOf returns a copy of a storage, as a tensor of bytes that the caller owns.
func copyOf(p *tensor.Place, s *tensor.Storage) (*tensor.Tensor, error) {
	whole, err := tensor.FromStorage(p, s, dtype.Uint8, 0, []int{int(s.Size())}, nil)
	if err != nil {
		return nil, err
	}
	defer whole.Release()
	return whole.Clone(p)
}

// rewind sets the generators to their states before the first run, and returns the present ones.
func (w *work) rewind() []uint64 {
	now := make([]uint64, len(w.Random))
	for i, g := range w.Random {
		now[i] = g.Offset()
		g.SetOffset(w.states[i])
	}
	return now
}

func (w *work) restore(states []uint64) {
	for i, g := range w.Random {
		g.SetOffset(states[i])
	}
}

// Drop implements schedule.Executor.
func (e *executor) Drop(s schedule.Storage) { (*core)(e).drop(e.contents[s]) }

// forget releases the memory of a content on the device and on the host.
func (r *core) forget(c *content) {
	r.drop(c)
	if r.spill != nil {
		r.spill.forget(c)
	}
}

// ForgetStorage implements schedule.Executor.
func (e *executor) ForgetStorage(s schedule.Storage) {
	c := e.contents[s]
	(*core)(e).forget(c)
	e.mem.removeForeign(c.foreign)
	delete(e.contents, s)
}

// ForgetOp implements schedule.Executor.
func (e *executor) ForgetOp(o schedule.Op) {
	if w := e.works[o]; w != nil {
		w.op = schedule.None
		delete(e.works, o)
	}
}
