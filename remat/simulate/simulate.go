// Package simulate runs recorded programs in less memory than they need, on a device without contents: results are
// dropped and computed again, or copied to the host and back, as package remat does with tensors. It says what that
// costs.
//
//	log, err := simulate.Read(file)
//	...
//	result, err := log.Run(simulate.Config{Budget: log.Peak / 2})
//	fmt.Println(result.Ratio(log))
//
// A [Log] is safe for concurrent use.
package simulate

// A log is a schedule.Program. Run announces it to a schedule.Engine whose executor is a clock: computing advances it
// by the recorded time of the operation, and copies take the time that the link needs, beside the computation.

import (
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// A Log is a recorded program.
type Log struct {
	Operations int
	Baseline   time.Duration // the sum of the times of the operations
	Peak       int64         // bytes with unlimited memory
	Constants  int64         // bytes that are never released
	// Bottleneck is the largest sum of inputs and outputs of one operation, with all constants. No budget below it is
	// enough.
	Bottleneck int64

	program *schedule.Program
}

// Config configures a run.
type Config struct {
	Budget    int64   // bytes; 0 means no limit
	Policy    string  // one of Policies; "" is the default
	Link      float64 // bytes per second between the device and the host; 0 disables copies
	HostLimit int64   // bytes of copies on the host; 0 means no limit
	// Plan follows a plan that was made with knowledge of the whole program, as for programs that repeat. The policy is
	// the default.
	Plan bool
	// Effort is how many operations are simulated in search of a plan; 0 is enough for some seconds.
	Effort  int
	MaxTime time.Duration // the run ends without completion when it has taken longer; 0 means no limit
}

// A Result says how a run went.
type Result struct {
	Completed  bool
	Err        error         // why it did not complete
	Time       time.Duration // of the device, waits for copies included
	Compute    time.Duration // of all operations
	Peak       int64         // bytes
	HostPeak   int64         // bytes of copies on the host
	CopiedOut  int64         // bytes to the host
	CopiedIn   int64         // bytes back
	Evictions  int64         // storages that were dropped for room
	Recomputes int64         // operations that ran again
	Decisions  int64         // how often the policy chose
}

// Ratio is the time of a run over that with unlimited memory.
func (r *Result) Ratio(l *Log) float64 { return float64(r.Time) / float64(max(l.Baseline, 1)) }

// linkLatency is the time of a copy without bytes, in ns.
const linkLatency = 10_000

// errTime ends a run that takes too long.
var errTime = errors.New("remat: the program was computed again for longer than is allowed")

// A Policy chooses what is dropped.
type Policy struct{ Name, Help string }

// Policies returns the policies; the first is the default.
func Policies() []Policy {
	var all []Policy
	for _, p := range schedule.Policies() {
		all = append(all, Policy(p))
	}
	return all
}

// Run runs the log within a budget. An error is one of the configuration; Result.Err is one of the run.
func (l *Log) Run(c Config) (*Result, error) {
	policy := schedule.Default()
	if c.Policy != "" {
		var err error
		if policy, err = schedule.NewPolicy(c.Policy); err != nil {
			return nil, err
		}
	}
	if c.Plan && c.Policy != "" && c.Policy != schedule.PolicyNames()[0] {
		return nil, fmt.Errorf("remat: plans are followed by the policy %s, not %s", schedule.PolicyNames()[0], c.Policy)
	}
	link := schedule.Link{BytesPerSecond: c.Link, LatencyNs: linkLatency}
	d := &device{limit: int64(c.MaxTime)}
	e := schedule.New(schedule.Config{
		Budget: c.Budget, Policy: policy,
		Link: link, HostLimit: c.HostLimit,
	}, d)
	if c.Plan {
		e.Follow(schedule.MakePlan(l.program, schedule.PlanConfig{
			Budget: c.Budget, Link: link, HostLimit: c.HostLimit, Effort: c.Effort,
		}))
	}
	err := l.program.Run(e)
	s := e.Stats()
	return &Result{
		Completed: err == nil, Err: err, Time: time.Duration(s.ComputeNs + s.StallNs), Compute: time.Duration(s.ComputeNs),
		Peak: s.Peak, HostPeak: s.HostPeak, CopiedOut: s.CopiedOut, CopiedIn: s.CopiedIn,
		Evictions: s.Evictions, Recomputes: s.Recomputes, Decisions: s.Decisions,
	}, nil
}

// maxSum is the largest sum of all sizes or all times in a log.
const maxSum = 1 << 60

// checkSums checks that no sum of a program can overflow.
func checkSums(p *schedule.Program) error {
	var bytes, ns int64
	add := func(to *int64, n int64) { *to += min(n, maxSum-*to+1) }
	for i := range p.Events {
		ev := &p.Events[i]
		add(&bytes, ev.Size)
		if ev.Call == nil {
			continue
		}
		add(&ns, ev.Call.Cost)
		add(&bytes, ev.Call.Scratch)
		for _, out := range ev.Call.Outputs {
			add(&bytes, out.Size)
		}
	}
	if bytes > maxSum || ns > maxSum {
		return fmt.Errorf("remat: the sizes or the times of the log add up to more than %d", int64(maxSum))
	}
	return nil
}

// newLog measures a program.
func newLog(p *schedule.Program) (*Log, error) {
	if err := checkSums(p); err != nil {
		return nil, err
	}
	l := &Log{program: p}
	sizes := storageSizes(p)
	for i := range p.Events {
		switch ev := &p.Events[i]; ev.Kind {
		case schedule.Constant:
			l.Constants += ev.Size
		case schedule.Calling:
			l.Operations++
			l.Bottleneck = max(l.Bottleneck, sizes.of(ev))
		}
	}
	l.Bottleneck += l.Constants
	d := &device{}
	e := schedule.New(schedule.Config{}, d) // without a budget the policy does not matter
	err := p.Run(e)
	l.Peak, l.Baseline = e.Stats().Peak, time.Duration(d.now)
	return l, err
}

// storages are the sizes of the storages of a program, and the storage of each value. Constants have no size.
type storages struct {
	size    []int64
	storage []int
}

func storageSizes(p *schedule.Program) *storages {
	s := &storages{storage: make([]int, p.Values)}
	for i := range p.Events {
		switch ev := &p.Events[i]; ev.Kind {
		case schedule.Constant:
			s.storage[ev.Value] = len(s.size)
			s.size = append(s.size, 0)
		case schedule.Calling:
			for k, out := range ev.Call.Outputs {
				v := int(ev.First) + k
				if out.Alias >= 0 {
					s.storage[v] = s.storage[ev.Call.Inputs[out.Alias]]
					continue
				}
				s.storage[v] = len(s.size)
				s.size = append(s.size, out.Size)
			}
		}
	}
	return s
}

// of returns the bytes of the inputs and outputs of a call, each storage once.
func (s *storages) of(ev *schedule.Event) int64 {
	seen := map[int]bool{}
	total := ev.Call.Scratch
	add := func(v schedule.Value) {
		if id := s.storage[v]; !seen[id] {
			seen[id] = true
			total += s.size[id]
		}
	}
	for _, v := range ev.Call.Inputs {
		add(v)
	}
	for k := range ev.Call.Outputs {
		add(ev.First + schedule.Value(k))
	}
	return total
}
