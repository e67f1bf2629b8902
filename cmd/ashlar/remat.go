package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/remat/simulate"
)

type rematCmd struct {
	Logs    []string  `arg:"" name:"log" help:"Logs of programs; - is standard input."`
	Budget  []float64 `default:"0.9,0.5,0.3" placeholder:"SHARE" help:"Budgets, as shares of the peak with unlimited memory (default: ${default})."`
	Policy  []string  `placeholder:"NAME" help:"Policies (default: chain); \"all\" is every one."`
	Plan    bool      `help:"Also follow a plan that is made with knowledge of the whole program, as for programs that repeat."`
	Bound   bool      `help:"Also print the least possible time, or a lower bound of it."`
	Link    float64   `placeholder:"GB/s" help:"Copy results to the host and back over a link with this many GB (10^9 bytes) a second each way."`
	Host    size      `name:"host-limit" help:"At most this many bytes of copies on the host (default: no limit)."`
	MaxTime float64   `default:"3" placeholder:"RATIO" help:"Give up when the time is this many times that with unlimited memory (default: ${default})."`
	JSON    bool      `name:"json" help:"Print one JSON object for each log, budget and policy."`
}

// Help implements kong.HelpProvider.
func (*rematCmd) Help() string {
	return `Simulates programs in less memory than they need: results are dropped and computed again when they are read, as the package
remat does.

A LOG lists the operations of a program with their times and sizes. It is in the format of DTR's simulator (JSON lines with the
instructions CONSTANT, CALL, MUTATE, ...), or in the project's own (see the package remat/simulate), plain or compressed with
gzip or zstd. remat/testdata/record_logs.py records such logs from PyTorch.

The budget is a share of the peak with unlimited memory. The bottleneck is the largest sum of inputs and outputs of one operation,
with all constants: no smaller budget can be enough. The time is that of the device, over that with unlimited memory.

With --plan each program also runs with knowledge of its future: weights of the policy, and of single results, are searched by
simulations for some seconds. A run beside the others shows it as the policy "plan". With --bound a line "least" has the least
possible time without copies, for programs of at most 16 results. For others, and with --link, a line "at least" has a lower
bound of it. With --link a line "copies" has a lower bound of the time if results are copied, and none is computed again.

With --link results are also copied to the host and back, beside the computation, where that takes less time than to compute them
again. An operation waits for copies of its inputs.

Policies:

` + policyHelp() + `
Exit code 4: no run of a log completed.

Examples:

    ashlar remat resnet.log
    ashlar remat --budget 0.5 --policy dtr-eq,lru remat/testdata/*.log.zst
    ashlar remat --json resnet.log | jq 'select(.completed) | [.budget, .ratio]'`
}

// planPolicy stands for the name of a policy in runs that follow a plan.
const planPolicy = "plan"

// policyHelp lists the policies.
func policyHelp() string {
	var text strings.Builder
	for _, p := range simulate.Policies() {
		fmt.Fprintf(&text, "    %-12s%s\n", p.Name, p.Help)
	}
	return text.String()
}

// rematLine is the output of --json.
type rematLine struct {
	Log             string  `json:"log"`
	Budget          float64 `json:"budget"` // share of the peak
	BudgetBytes     int64   `json:"budget_bytes"`
	Policy          string  `json:"policy"`
	Operations      int     `json:"operations"`
	BaselineNs      int64   `json:"baseline_ns"`
	BaselinePeak    int64   `json:"baseline_peak_bytes"`
	BottleneckBytes int64   `json:"bottleneck_bytes"`
	ComputeNs       int64   `json:"compute_ns"` // with the waits for copies
	Ratio           float64 `json:"ratio"`
	Completed       bool    `json:"completed"`
	Error           string  `json:"error,omitempty"`
	PeakBytes       int64   `json:"peak_bytes"`
	Evictions       int64   `json:"evictions"`
	Recomputes      int64   `json:"recomputes"`
	CopiedOut       int64   `json:"copied_out_bytes"`
	CopiedIn        int64   `json:"copied_in_bytes"`
	HostPeak        int64   `json:"host_peak_bytes"`
	Decisions       int64   `json:"decisions"`
	Seconds         float64 `json:"seconds"` // of the simulation
}

// Run implements the command.
func (c *rematCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return usageError{err}
	}
	if err := checkInputs(c.Logs); err != nil {
		return err
	}
	code := exitOK
	for i, path := range c.Logs {
		if !s.out.flush() {
			break // the output is closed
		}
		lines, err := c.simulate(s, path)
		if err != nil {
			s.fail(displayPath(path), err)
			code = max(code, exitCode(err))
			continue
		}
		if !slices.ContainsFunc(lines, func(l rematLine) bool { return l.Completed }) {
			code = max(code, exitNoRoom)
		}
		if c.JSON {
			encoder := json.NewEncoder(s.out)
			for i := range lines {
				if err := encoder.Encode(&lines[i]); err != nil {
					return err
				}
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		writeRemat(s.out, lines)
	}
	return ended(code)
}

// check checks the flags, and replaces "all" by the policies.
func (c *rematCmd) check() error {
	for _, b := range c.Budget {
		if !(b > 0 && b <= 1) {
			return fmt.Errorf("--budget %v: want shares of the peak, above 0 and at most 1", b)
		}
	}
	if !(c.Link >= 0 && c.Link <= 1e6) {
		return fmt.Errorf("--link %v: want 0 to 1000000 GB/s", c.Link)
	}
	if !(c.MaxTime >= 1 && c.MaxTime <= 1e6) {
		return fmt.Errorf("--max-time %v: want 1 to 1000000", c.MaxTime)
	}
	known := simulate.Policies()
	if len(c.Policy) == 0 {
		c.Policy = []string{known[0].Name}
	}
	if slices.Contains(c.Policy, "all") {
		c.Policy = nil
		for _, p := range known {
			c.Policy = append(c.Policy, p.Name)
		}
	}
	for _, name := range c.Policy {
		if !slices.ContainsFunc(known, func(p simulate.Policy) bool { return p.Name == name }) {
			return fmt.Errorf("--policy %s: want all, or one of those that \"ashlar remat --help\" lists", name)
		}
	}
	return nil
}

// simulate runs a log with all budgets and policies.
func (c *rematCmd) simulate(s *streams, path string) ([]rematLine, error) {
	p := newProgress(s.err, "reading "+displayPath(path))
	defer p.end()
	f, closeFile, err := openInput(path, s.in, p)
	if err != nil {
		return nil, err
	}
	defer closeFile()
	log, err := simulate.Read(f)
	if err != nil {
		return nil, withoutPath(err)
	}
	policies := c.Policy
	if c.Plan {
		policies = append(slices.Clone(policies), planPolicy)
	}
	var lines []rematLine
	for _, budget := range c.Budget {
		for _, policy := range policies {
			p.at(fmt.Sprintf("simulating %s at %v with %s", displayPath(path), budget, policy))
			line, err := c.run(log, budget, policy)
			if err != nil {
				return nil, err
			}
			lines = append(lines, line)
		}
		if c.Bound {
			bounds, err := c.bounds(log, budget)
			if err != nil {
				return nil, err
			}
			lines = append(lines, bounds...)
		}
	}
	for i := range lines {
		lines[i].Log = logName(path)
	}
	return lines, nil
}

func (c *rematCmd) run(log *simulate.Log, budget float64, policy string) (rematLine, error) {
	begun := now()
	config := simulate.Config{
		Budget: int64(budget * float64(log.Peak)), Policy: policy, Link: c.Link * 1e9, HostLimit: int64(c.Host),
		MaxTime: time.Duration(min(c.MaxTime*float64(log.Baseline), float64(1<<62))),
	}
	if policy == planPolicy {
		config.Policy, config.Plan = "", true
	}
	r, err := log.Run(config)
	if err != nil {
		return rematLine{}, err
	}
	line := rematLine{
		Budget: budget, BudgetBytes: config.Budget, Policy: policy, Operations: log.Operations,
		BaselineNs: int64(log.Baseline), BaselinePeak: log.Peak, BottleneckBytes: log.Bottleneck,
		ComputeNs: int64(r.Time), Ratio: r.Ratio(log), Completed: r.Completed, PeakBytes: r.Peak,
		Evictions: r.Evictions, Recomputes: r.Recomputes, CopiedOut: r.CopiedOut, CopiedIn: r.CopiedIn,
		HostPeak: r.HostPeak, Decisions: r.Decisions, Seconds: now().Sub(begun).Seconds(),
	}
	if r.Err != nil {
		line.Error = r.Err.Error()
	}
	return line, nil
}

// bounds returns the least possible time, or a lower bound of it, as a line, and with a link one of copies alone.
func (c *rematCmd) bounds(log *simulate.Log, budget float64) ([]rematLine, error) {
	bytes, link := int64(budget*float64(log.Peak)), c.Link*1e9
	var lines []rematLine
	add := func(name string, least func() (time.Duration, bool, error)) error {
		begun := now()
		time, possible, err := least()
		lines = append(lines, rematLine{
			Budget: budget, BudgetBytes: bytes, Policy: name, Operations: log.Operations, Completed: possible,
			BaselineNs: int64(log.Baseline), BaselinePeak: log.Peak, BottleneckBytes: log.Bottleneck,
			ComputeNs: int64(time), Ratio: float64(time) / float64(max(log.Baseline, 1)), Seconds: now().Sub(begun).Seconds(),
		})
		return err
	}
	if log.Small() && link == 0 {
		err := add("least", func() (time.Duration, bool, error) { return log.Least(bytes) })
		return lines, err
	}
	add("at least", func() (time.Duration, bool, error) { return log.AtLeast(bytes, link), true, nil })
	if link > 0 {
		add("copies", func() (time.Duration, bool, error) { return log.CopiesAtLeast(bytes, link), true, nil })
	}
	return lines, nil
}

// logName is the name of a log in tables.
func logName(path string) string {
	if path == "-" {
		return displayPath(path)
	}
	name := filepath.Base(path)
	for _, ending := range []string{".zst", ".gz", ".log"} {
		if cut := strings.TrimSuffix(name, ending); cut != "" {
			name = cut
		}
	}
	return clean(name, maxWhere)
}

// writeRemat writes the runs of a log as a table.
func writeRemat(to *page, lines []rematLine) {
	first := &lines[0]
	fmt.Fprintf(to, "%s: %s operations, %s, peak %s, bottleneck %.1f %% of it\n", first.Log, count(first.Operations),
		duration(time.Duration(first.BaselineNs)), bytesize.Format(first.BaselinePeak),
		100*float64(first.BottleneckBytes)/float64(max(first.BaselinePeak, 1)))
	t := table{
		header:   []string{"policy", "budget", "time", "peak", "evictions", "recomputed", "copied back", "decisions/s"},
		optional: []int{7, 3, 6, 5}, marked: -1,
	}
	for i := range lines {
		t.rows = append(t.rows, lines[i].row())
	}
	t.write(to)
}

func (l *rematLine) row() []string {
	ratio := fmt.Sprintf("%.3f", l.Ratio)
	if !l.Completed {
		ratio = "fails"
	}
	speed := "-"
	if l.Decisions > 0 && l.Seconds > 0 {
		speed = count(int64(float64(l.Decisions) / l.Seconds))
	}
	return []string{
		l.Policy, fmt.Sprintf("%.2f", l.Budget), ratio, bytesize.Format(l.PeakBytes), count(l.Evictions),
		count(l.Recomputes), bytesize.Format(l.CopiedIn), speed,
	}
}
