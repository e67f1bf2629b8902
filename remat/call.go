package remat

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
	"github.com/ashlar-go/ashlar/tensor"
)

// A Func computes tensors from tensors, at p. Its results are made at p, or are views of the inputs or of each other.
// All else that it makes at p is released when it returns, so results need not be kept.
//
// It may be called again at any time until the runtime is closed, and must then make the same results. So it depends on
// nothing but its inputs, and on generators named in Op.Random: a variable that it captures must not change. It must
// not use the runtime or its tensors, nor allocate memory at p on other goroutines.
type Func func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error)

// An Op is an operation: a function and its properties.
type Op struct {
	// Name is for messages. Operations with equal names and inputs of equal shapes are taken to cost the same time.
	Name string
	Func Func

	// Writes lists the inputs, by index, that Func changes in place. After the call, all views of their storages have
	// the new contents. What was computed from the old ones stays correct, also if it is made again.
	Writes []int

	// Random lists the generators from which Func draws numbers. Each call of Func finds them in the state of the first
	// one. While Func runs, other goroutines must not use them.
	Random []*compute.Generator

	// Once says that Func cannot be called again: it reads a file, say. Its results are not evicted.
	Once bool
}

// Call runs f on the inputs, which are made again if they were evicted, and returns its results. name is for messages.
// The caller or the runtime's scope releases the results. After an error there are none. If there is no room for what f
// makes, even with all but the inputs evicted, the error matches mem.ErrNoMemory.
func (r *Runtime) Call(name string, f Func, inputs ...*Tensor) ([]*Tensor, error) {
	return r.Do(Op{Name: name, Func: f}, inputs...)
}

// Do is Call for an operation with properties. After an error, constants that the operation was to change in place have
// undefined contents; other tensors keep theirs.
func (r *Runtime) Do(op Op, inputs ...*Tensor) ([]*Tensor, error) {
	r.lock("Call")
	defer r.unlock()
	r.poll()
	w, err := r.newWork(op, inputs)
	if err != nil {
		return nil, err
	}
	for _, v := range w.changes {
		if v.locks > 0 && !r.staysInPlace(v) {
			return nil, fmt.Errorf("remat: %s changes a tensor that is locked", op.Name)
		}
	}
	f := &firstRun{r: r.core, work: w, variables: make([]*variable, len(inputs))}
	for i, t := range inputs {
		f.variables[i] = t.variable
	}
	if err := f.run(); err != nil {
		return nil, wrap(op.Name, err)
	}
	out := make([]*Tensor, len(f.results))
	for i, res := range f.results {
		out[i] = r.handle(res.variable, res.view)
	}
	return out, nil
}

// staysInPlace reports whether an operation in place changes the content of v itself, since that cannot be made again.
func (r *core) staysInPlace(v *variable) bool { return r.engine.Fixed(v.now.value) }

// newWork returns the record of an operation, before it ran.
func (r *core) newWork(op Op, inputs []*Tensor) (*work, error) {
	w := &work{Op: op, op: schedule.None, inputs: make([]operand, len(inputs))}
	w.Random = slices.Clone(op.Random)
	for i, t := range inputs {
		if err := r.own(op.Name, t); err != nil {
			return nil, err
		}
		w.inputs[i] = operand{t.variable.now, t.view}
	}
	for _, i := range op.Writes {
		if i < 0 || i >= len(inputs) {
			return nil, fmt.Errorf("remat: %s writes input %d of %d", op.Name, i, len(inputs))
		}
		if v := inputs[i].variable; !slices.Contains(w.changes, v) {
			w.changes = append(w.changes, v)
		}
	}
	for _, g := range w.Random {
		w.states = append(w.states, g.Offset())
	}
	w.key = costKey(op.Name, w.inputs)
	return w, nil
}

// A firstRun is the first run of an operation.
type firstRun struct {
	r         *core
	work      *work
	variables []*variable // of the inputs
	taken     []*variable // variables whose memory a new content takes over
	made      []*content  // new contents, first those of taken
	results   []result
}

// A result is a result of a first run: a view of an input, or of a new storage.
type result struct {
	variable *variable
	view     view
}

func (f *firstRun) run() error {
	r, w := f.r, f.work
	if err := f.settle(); err != nil {
		return err
	}
	if err := r.engine.Begin(w.Name, w.values()); err != nil {
		return err
	}
	ended := false
	defer func() { // also if the function panics
		if !ended {
			f.undo()
			r.engine.Abort()
		}
	}()
	before := r.mem.restart()
	timed := r.costs.begin(w.key)
	defer timed.cancel()
	data, err := w.memory(r, w.changes)
	if err == nil {
		err = w.invoke(r.place, data, f.collect)
	}
	if err != nil {
		return err
	}
	f.end(before, timed)
	r.operations++
	ended = true
	return nil
}

// settle prepares the inputs that are changed in place. What was computed from one that cannot be made again must not
// need its old contents any more. All others become new contents.
func (f *firstRun) settle() error {
	for _, v := range f.work.changes {
		if f.r.staysInPlace(v) {
			if err := f.r.engine.Settle(v.now.value); err != nil {
				return err
			}
		} else {
			f.taken = append(f.taken, v)
		}
	}
	return nil
}

// collect finds the storages of the results, and keeps those that are new.
func (f *firstRun) collect(results []*tensor.Tensor) error {
	for _, v := range f.taken {
		f.made = append(f.made, &content{size: v.now.size})
		f.work.outputs = append(f.work.outputs, output{changed: v.now})
	}
	fresh := map[*tensor.Storage]*variable{}
	for i, t := range results {
		s := t.Storage()
		v := f.input(s)
		if v == nil {
			v = fresh[s]
		}
		if v == nil {
			if s.Allocator() != f.r.mem {
				return fmt.Errorf("result %d, %s, was not made at the place of the operation", i, t.Brief())
			}
			c := &content{size: s.BlockSize(), data: s.Retain()}
			v = &variable{now: c}
			fresh[s] = v
			f.made = append(f.made, c)
			f.work.outputs = append(f.work.outputs, output{result: i})
		}
		f.results = append(f.results, result{v, viewOf(t)})
	}
	return nil
}

// input returns the variable of an input with the storage s, or nil.
func (f *firstRun) input(s *tensor.Storage) *variable {
	for i, o := range f.work.inputs {
		if o.content.data == s {
			return f.variables[i]
		}
	}
	return nil
}

// end enters the operation in the schedule.
func (f *firstRun) end(before int64, timed *timedRun) {
	r, w := f.r, f.work
	call := schedule.Call{Name: w.Name, Inputs: w.values(), Work: w, Fixed: w.Once}
	kept := int64(0)
	for i, c := range f.made {
		call.Outputs = append(call.Outputs, schedule.Output{Size: c.size, Alias: -1})
		w.bytes += c.size
		if i >= len(f.taken) {
			kept += c.size
		}
	}
	for _, o := range w.inputs {
		w.bytes += o.content.size
	}
	call.Scratch = max(r.mem.high.Load()-before-kept, 0)
	timed.end(w, w.bytes)
	call.Cost = timed.estimate(w.bytes)
	for i, v := range f.taken {
		f.made[i].data, v.now.data = v.now.data, nil
		r.engine.Overwritten(v.now.value)
	}
	op, values := r.engine.End(call)
	if op != schedule.None {
		w.op, r.works[op] = op, w
	}
	for i, c := range f.made {
		r.enter(c, values[i])
	}
	for i, v := range f.taken {
		old := v.now.value
		v.now = f.made[i]
		r.engine.Release(old)
	}
	w.changes = nil
}

// undo releases what a failed run made. The contents that it may have changed count as evicted: their operations make
// them again.
func (f *firstRun) undo() {
	for _, c := range f.made {
		f.r.drop(c)
	}
	for _, v := range f.taken {
		if v.now.data != nil {
			f.r.drop(v.now)
			f.r.engine.Overwritten(v.now.value)
		}
	}
}
