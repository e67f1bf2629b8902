package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/holders"
)

type explainCmd struct {
	traceArgs
	momentArgs
	Top    uint `default:"10" placeholder:"N" help:"Print at most N holders (default: ${default}); 0 prints all."`
	Limit  size `placeholder:"SIZE" help:"The limit of the process, which recordings lack."`
	Memory size `placeholder:"SIZE" help:"The memory of the GPU, which recordings lack."`
	JSON   bool `name:"json" help:"Print one JSON object for each device of each trace."`
}

// Help implements kong.HelpProvider.
func (*explainCmd) Help() string {
	return `Says in three lines why a program ran out of memory, which line of the program holds the most of it, and what to change. The
evidence follows. A program that did not run out of memory is examined for leaks and for settings that cost memory.

The causes, each confirmed by a replay in which it alone is removed:

    limit            a limit of the process, while the GPU had room
    too_much         more live memory than the GPU has
    fragmentation    enough free memory, but in holes that are too small
    leak             live memory that grows from step to step
    cached           free memory that is cached for other streams
    private_pools    free memory in private pools, such as those of captured graphs
    other_processes  memory of other processes, or of other libraries in the process
    setting          a setting of the allocator that costs memory
    none             nothing failed, and no cause was found

A cause is certain if the recording and a replay show it, and likely if a fact that decides is missing in the recording. The
limit of the process and the memory of the GPU are such facts; --limit and --memory give them.

Several traces are taken as the ranks of one job: a table has a row for each, and the ranks that differ from the others are
named with the line that makes the difference.

--json prints one object for each device of each trace: verdict (the causes, the likeliest first), sure (how sure each is),
limit_bytes, requested_peak, needed (bytes, by setting), holders (frame, category, bytes and blocks, the largest first; they add
up to the bytes at the moment), and the evidence.

Lines of the program are known if stacks were recorded: _record_memory_history(stacks="python"). The holders are those of the
peak or, with --at, of another moment.

` + momentHelp + `

Examples:

    ashlar explain oom.pickle
    ashlar explain --limit 18.2GiB --at oom oom.pickle
    ashlar explain --json oom.pickle | jq -r .verdict[0]
    ashlar explain rank*.pickle`
}

// explained is a report with its place.
type explained struct {
	in     *input
	name   string // of the trace and, if there are several, of the device
	report *diagnose.Report
}

// Run implements the command.
func (c *explainCmd) Run(s *streams) error {
	s.out.width = min(s.out.width, holdersWidth)
	var all []explained
	err := c.each(s, func(in *input, p *progress) error {
		reports, err := c.reports(in, p)
		if err != nil {
			return err
		}
		p.end()
		for _, r := range reports {
			x := explained{in: in, name: in.name(), report: r}
			if len(reports) > 1 {
				x.name = fmt.Sprintf("%s, device %d", x.name, r.Device)
			}
			if !c.JSON {
				all = append(all, x)
				continue
			}
			if err := json.NewEncoder(s.out).Encode(explanationOf(&x)); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case len(all) == 1:
		writeExplained(s.out, &all[0], c.Top)
	case len(all) > 1:
		writeRanks(s.out, all)
	}
	return err
}

// reports returns the report of each device of a trace.
func (c *explainCmd) reports(in *input, p *progress) (reports []*diagnose.Report, err error) {
	if in.script != nil {
		return nil, errors.New("explain reads memory snapshots, not scripts")
	}
	p.at("explaining " + in.name())
	works, err := in.works()
	if err != nil {
		return nil, err
	}
	for _, w := range works {
		h, err := holders.New(in.snapshot, w.Device)
		if err != nil {
			return nil, err
		}
		h.Frames.Fold(foldings[c.Frames])
		r, err := diagnose.Explain(in.snapshot, w, h, diagnose.Options{
			Limit: int64(c.Limit), Memory: int64(c.Memory), At: string(c.At), Progress: p.update,
		})
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}
