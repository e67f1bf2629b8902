package schedule

import (
	"math"
	"slices"
)

// A Plan is what is known of a program that repeats: its operations in their order, and when each storage is read next.
// Storages are numbered in the order in which the program names them.
type Plan struct {
	ops    []plannedOp
	clock  []int64   // ns of computation before each operation, and in the end
	uses   [][]int32 // of each storage: the positions of the operations that read it
	makers []int32   // of each storage: the operation that makes it; None for constants
	born   []int32   // of each storage: the operation that makes it, or the next one after a constant
	sizes  []int64   // of each storage

	weights weights
	stays   []stay
	bias    []float64 // of each storage: a factor of the cost to evict it; nil is 1 for all
	copies  bool      // results may be copied to the host
	online  bool      // the policy without a plan is better

	transfers *transfers // to the host and back; nil is none, or while online those that the engine chooses
	without   *Plan      // the best plan without copies, if this one has copies
}

// A stay is the set of storages that should be resident at one operation, and not be evicted before.
type stay struct {
	until int32
	keep  []bool // by storage
}

// A plannedOp is an operation of a plan.
type plannedOp struct {
	name    string
	inputs  []int32 // storages
	outputs []int32 // storages of all outputs
	sizes   []int64 // of the outputs that own their storage
	scratch int64
	fixed   bool
}

// timetable returns the plan of a program without decisions.
func timetable(p *Program) *Plan {
	plan := &Plan{weights: portfolio[0]}
	storages, refs := make([]int32, p.Values), make([]int32, p.Values)
	fresh := func(v Value, size int64, maker int) {
		storages[v], refs[v] = int32(len(plan.uses)), 1
		plan.uses = append(plan.uses, nil)
		plan.sizes, plan.makers = append(plan.sizes, size), append(plan.makers, int32(maker))
		plan.born = append(plan.born, int32(len(plan.ops)))
	}
	use := func(v Value) {
		plan.uses[storages[v]] = append(plan.uses[storages[v]], int32(len(plan.ops)))
	}
	now := int64(0)
	for i := range p.Events {
		switch ev := &p.Events[i]; ev.Kind {
		case Constant:
			fresh(ev.Value, ev.Size, None)
		case Retain:
			refs[ev.Value]++
		case Release:
			refs[ev.Value]--
		case Calling:
			op := plannedOp{name: ev.Call.Name, scratch: ev.Call.Scratch, fixed: ev.Call.Fixed}
			for _, v := range ev.Call.Inputs {
				use(v)
				op.inputs = append(op.inputs, storages[v])
			}
			for k, out := range ev.Call.Outputs {
				v := ev.First + Value(k)
				if out.Alias >= 0 {
					storages[v], refs[v] = storages[ev.Call.Inputs[out.Alias]], 1
				} else {
					fresh(v, out.Size, len(plan.ops))
					op.sizes = append(op.sizes, out.Size)
				}
				op.outputs = append(op.outputs, storages[v])
			}
			plan.ops, plan.clock = append(plan.ops, op), append(plan.clock, now)
			now += ev.Call.Cost
		}
	}
	plan.clock = append(plan.clock, now)
	for v, n := range refs {
		if n > 0 {
			use(Value(v))
		}
	}
	return plan
}

// A following is an engine's progress in a plan.
type following struct {
	plan   *Plan
	at     int32     // the running operation
	stay   int       // the next stay
	out    int       // the next copy to the host
	back   int       // the next copy from the host
	cursor []int32   // of each storage by number: its next use
	needed []int64   // of each storage by number that was copied back: when it was read, by the plan's clock
	number []int32   // of storages by id, or None
	bound  []Storage // ids by number, or None
}

// Follow makes the engine choose by a plan from here on, as long as it is given the operations of the plan, in their
// order. From the first other one on, and after the last, it chooses by its policy again.
func (e *Engine) Follow(p *Plan) {
	if e.link.paused && p.without != nil {
		p = p.without
	}
	e.follow = following{
		plan: p, at: -1, cursor: make([]int32, len(p.uses)), bound: slices.Repeat([]Storage{None}, len(p.uses)),
	}
	if p.transfers != nil {
		e.follow.needed = slices.Repeat([]int64{math.MaxInt64}, len(p.uses))
	}
}

// Following reports whether the engine chooses by a plan now.
func (e *Engine) Following() bool { return e.follow.plan != nil && !e.follow.plan.online }

// plan returns the plan by which the engine chooses now, or nil.
func (e *Engine) plan() *Plan {
	if !e.Following() {
		return nil
	}
	return e.follow.plan
}

// next notes that an operation begins.
func (f *following) next(e *Engine, name string, inputs []Value) {
	if f.plan == nil {
		return
	}
	if f.at++; int(f.at) >= len(f.plan.ops) {
		f.plan = nil
		return
	}
	for f.stay < len(f.plan.stays) && f.plan.stays[f.stay].until < f.at {
		f.stay++
	}
	op := &f.plan.ops[f.at]
	if op.name != name || len(op.inputs) != len(inputs) {
		f.plan = nil
		return
	}
	for i, v := range inputs {
		f.bind(op.inputs[i], e.values[v].storage)
	}
}

// made notes the outputs of an operation.
func (f *following) made(e *Engine, o Op) {
	if f.plan == nil {
		return
	}
	op, outputs := &f.plan.ops[f.at], e.ops[o].outputs
	if len(op.outputs) != len(outputs) {
		f.plan = nil
		return
	}
	for i, v := range outputs {
		f.bind(op.outputs[i], e.values[v].storage)
	}
}

// bind notes the number of a storage, and departs if it has another.
func (f *following) bind(number int32, s Storage) {
	for len(f.number) <= int(s) {
		f.number = append(f.number, None)
	}
	switch {
	case f.plan == nil:
	case f.bound[number] == None:
		f.bound[number], f.number[s] = s, number
	case f.bound[number] != s:
		f.plan = nil
	}
}

// forget notes that the id of a storage may be used for another.
func (f *following) forget(s Storage) {
	if int(s) < len(f.number) {
		f.number[s] = None
	}
}

// numberOf returns the number of a storage in the plan, or None.
func (f *following) numberOf(s Storage) int32 {
	if int(s) >= len(f.number) {
		return None
	}
	return f.number[s]
}

// until returns the time until a storage is read next, or -1 if it is not read again, or is not part of the plan.
func (f *following) until(s Storage) int64 {
	n := f.numberOf(s)
	if n == None {
		return -1
	}
	uses := f.plan.uses[n]
	for int(f.cursor[n]) < len(uses) && uses[f.cursor[n]] <= f.at {
		f.cursor[n]++
	}
	if int(f.cursor[n]) == len(uses) {
		return -1
	}
	return f.plan.clock[uses[f.cursor[n]]] - f.plan.clock[max(f.at, 0)]
}

// bias returns the factor of the cost to evict a storage.
func (f *following) bias(s Storage) float64 {
	n, bias := f.numberOf(s), 1.0
	if n == None {
		return bias
	}
	if f.plan.bias != nil {
		bias = f.plan.bias[n]
	}
	if f.stay < len(f.plan.stays) && f.plan.stays[f.stay].keep[n] {
		bias *= dear
	}
	return bias
}

// dear is the factor of the cost of a storage that should stay. It is finite: there may be nothing else to evict.
const dear = 1000

// Unfollow ends Follow, and reports whether the operations were those of the plan, all of them.
func (e *Engine) Unfollow() bool {
	f := &e.follow
	whole := f.plan != nil && int(f.at) == len(f.plan.ops)-1
	f.plan = nil
	return whole
}

// never is the time until a storage is read that is not read again, as a multiple of the program's time. It is finite
// since other storages may be made of it.
const never = 100

// planned is the default policy. While the engine follows a plan, the time until a storage is read next takes the place
// of the time since it was read last, and the weights are those of the plan.
type planned struct{ *chainPolicy }

func (p *planned) victim(need int64) Storage {
	plan := p.e.plan()
	if plan == nil {
		p.use(defaultWeights)
		return p.chainPolicy.victim(need)
	}
	p.use(plan.weights)
	p.copied()
	for range retries {
		s := p.cheapest(plan)
		if s == None || !p.update(s) {
			return s
		}
	}
	return p.cheapest(plan)
}

// power is math.Pow, and fast for the exponents that plans have.
func power(x, exponent float64) float64 {
	switch exponent {
	case 1:
		return x
	case 0.5:
		return math.Sqrt(x)
	case 0.25:
		return math.Sqrt(math.Sqrt(x))
	}
	return math.Pow(x, exponent)
}

// cheapest returns the storage with the least known cost for each byte and time until it is read next.
func (p *planned) cheapest(plan *Plan) Storage {
	f := &p.e.follow
	end := float64(never * plan.clock[len(plan.ops)])
	return p.least(func(id Storage, s *storage) float64 {
		distance := float64(f.until(id))
		if distance < 0 {
			distance = end
		}
		bias := f.bias(id)
		if p.e.leaving(id) {
			bias *= dear
		}
		return p.nodes[id].cost * bias / (float64(s.size) * power(distance+1, p.exponent))
	})
}
