package schedule

import "fmt"

// Config configures an Engine.
type Config struct {
	Budget    int64  // bytes on the device, constants included; 0 means no limit
	Policy    Policy // nil is Default()
	Link      Link   // for copies to the host; the zero Link disables them
	HostLimit int64  // bytes of copies on the host; 0 means no limit
}

// A Link describes copies between the device and the host.
type Link struct {
	BytesPerSecond float64
	LatencyNs      int64
}

// An Engine keeps the memory of recorded operations within a budget. It is not safe for concurrent use.
type Engine struct {
	x      Executor
	policy Policy
	budget int64
	stats  Stats
	now    int64 // ns of computation so far

	values   []value
	storages []storage
	ops      []op
	pool     []Storage // evictable storages, in no order

	freeValues   []Value
	freeStorages []Storage
	freeOps      []Op

	serial int32 // of the next storage
	link   spilling
	follow following
	record *recorder // nil unless the program is recorded

	reviewed map[string]bool // names of operations that make views of values whose views were released

	waiting []Op    // operations whose inputs are being made, outermost first
	tries   int     // executions within the current call of a user
	dying   []Value // values that may be forgotten
	run     Run     // reused
	begun   []Value
}

// Stats are the figures of an Engine.
type Stats struct {
	Budget       int64
	Used         int64 // bytes on the device: resident storages, and the outputs and scratch of the running operation
	Peak         int64 // the largest Used
	Fixed        int64 // bytes that are never evicted
	ComputeNs    int64 // of all executions
	RecomputeNs  int64 // of repeated executions
	Recomputes   int64
	Evictions    int64 // storages that were dropped for room
	EvictedBytes int64
	Decisions    int64 // how often the policy chose
	Host         int64 // bytes of copies on the host
	HostPeak     int64 // the largest Host
	CopiedOut    int64 // bytes copied to the host
	CopiedIn     int64 // bytes copied back
	StallNs      int64 // time spent waiting for copies
}

// A NoMemory error says that an operation cannot run within the budget.
type NoMemory struct {
	Name   string // the operation
	Need   int64  // bytes for its outputs and scratch
	Used   int64  // bytes that could not be evicted
	Budget int64
}

func (e *NoMemory) Error() string {
	what := e.Name
	if what == "" {
		what = "constant"
	}
	return fmt.Sprintf("remat: %s needs %d bytes beside %d bytes that cannot be evicted, and the budget is %d; raise "+
		"the budget or release results", what, e.Need, e.Used, e.Budget)
}

// New returns an engine without storages.
func New(c Config, x Executor) *Engine {
	if c.Policy == nil {
		c.Policy = Default()
	}
	e := &Engine{x: x, policy: c.Policy, budget: c.Budget, reviewed: map[string]bool{}}
	e.link.Link, e.link.hostLimit = c.Link, c.HostLimit
	e.link.copier, _ = x.(Copier)
	e.policy.attach(e)
	return e
}

// Stats returns the figures of the engine.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Budget = e.budget
	return s
}

// SetBudget changes the budget and evicts what exceeds it.
func (e *Engine) SetBudget(bytes int64) error {
	e.budget = bytes
	return e.room(0, "budget")
}

// Constant announces memory that exists outside of the engine. It counts and is never evicted. The result has one
// reference.
func (e *Engine) Constant(size int64) (Value, error) {
	if err := e.room(size, ""); err != nil {
		return None, err
	}
	s := e.newStorage(size)
	v := e.newValue(value{storage: s, op: None, defined: true, ran: true})
	st := &e.storages[s]
	st.values, st.resident, st.fixed = append(st.values, v), true, true
	e.refer(v, 1)
	e.use(size)
	e.stats.Fixed += size
	e.record.constant(e, v)
	return v, nil
}

// Planning returns the configuration for plans that this engine follows.
func (e *Engine) Planning() PlanConfig {
	return PlanConfig{Budget: e.budget, Link: e.link.Link, HostLimit: e.link.hostLimit}
}

// Storage returns the storage of a value.
func (e *Engine) Storage(v Value) Storage { return e.values[v].storage }

// Resident reports whether a value can be read now.
func (e *Engine) Resident(v Value) bool { return e.values[v].defined }

// SetCost sets the cost of an operation, in ns, once it is known. The time of the engine is corrected by one execution.
func (e *Engine) SetCost(o Op, ns int64) { e.now += e.price(o, ns) }

// price sets the cost of an operation and returns the change.
func (e *Engine) price(o Op, ns int64) int64 {
	change := ns - e.ops[o].cost
	e.ops[o].cost = ns
	e.eachStorage(o, func(s Storage) {
		e.storages[s].cost += change
		e.policy.changed(s)
	})
	return change
}

// programTime is the time of the program without what was computed again.
func (e *Engine) programTime() int64 { return e.stats.ComputeNs - e.stats.RecomputeNs }

// use adds to the memory in use.
func (e *Engine) use(bytes int64) {
	e.stats.Used += bytes
	e.stats.Peak = max(e.stats.Peak, e.stats.Used)
}

// eachStorage calls f once for each storage of the outputs of an operation.
func (e *Engine) eachStorage(o Op, f func(Storage)) {
	outputs := e.ops[o].outputs
next:
	for i, v := range outputs {
		s := e.values[v].storage
		for _, earlier := range outputs[:i] {
			if e.values[earlier].storage == s {
				continue next
			}
		}
		f(s)
	}
}
