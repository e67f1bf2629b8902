package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

type diffCmd struct {
	Before string   `arg:"" help:"The trace to compare with; - is standard input."`
	After  []string `arg:"" help:"The traces to compare."`
	momentArgs
	By        []string `enum:"line,function,module,stack,category,stream,pool,tag" placeholder:"KEY" help:"Compare by line (the default), function, module, stack, category, stream, pool or tag; several make groups."`
	Top       uint     `default:"20" placeholder:"N" help:"Print at most N changes (default: ${default}); 0 prints all, also what did not change."`
	MaxGrowth growth   `placeholder:"SIZE" help:"Exit code 1 if the requested memory grew by more: a size, or a part such as 5%."`
	JSON      bool     `name:"json" help:"Print one JSON object for each comparison."`
}

// Help implements kong.HelpProvider.
func (*diffCmd) Help() string {
	return `Compares the memory of two runs of one program, at the peak of each or at another moment: what grew, what is new and what is
gone, by your own innermost line or other keys. The changes add up to the difference of the requested memory. Lines are
followed if other lines were inserted above them, and files if they are in another directory. Steps are compared by their
numbers. With more than two traces each is compared with the first, such as the ranks of a job with rank 0.

` + momentHelp + `

Examples:

    ashlar diff yesterday.pickle today.pickle
    ashlar diff --at step:5 --by category --by line main.pickle branch.pickle
    ashlar diff rank0.pickle rank1.pickle rank2.pickle
    ashlar diff --max-growth 2% main.pickle branch.pickle    # in CI`
}

// A growth is a number of bytes, or a part of the memory before.
type growth struct {
	given bool
	size  int64
	part  float64
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *growth) UnmarshalText(text []byte) error {
	number, isPart := strings.CutSuffix(string(text), "%")
	if !isPart {
		n, err := bytesize.Parse(string(text))
		*g = growth{given: true, size: n}
		return err
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !(x >= 0) || math.IsInf(x, 0) {
		return fmt.Errorf("growth %q: want a size, or a number of at least 0 before the %%", text)
	}
	*g = growth{given: true, part: x / 100}
	return nil
}

// exceeded reports whether memory grew by more.
func (g growth) exceeded(before, after int64) bool {
	return g.given && float64(after-before) > float64(g.size)+g.part*float64(before)
}

// A comparison is the output of diff --json: two devices at a moment of each.
type comparison struct {
	Before    string       `json:"before"`
	After     string       `json:"after"`
	Device    int          `json:"device"` // of the second trace
	Moments   [2]string    `json:"moments"`
	Requested [2]int64     `json:"requested"`
	Change    int64        `json:"change"`
	By        []string     `json:"by"`
	Changes   []changeLine `json:"changes"` // the largest first; they add up to change
	Steps     []stepLine   `json:"steps"`   // that both have

	views [2]*holders.View
	names [2]string
	among bool // there are several devices
}

// A changeLine is one change. The values are in the order of comparison.By.
type changeLine struct {
	Values []string `json:"values"`
	Bytes  [2]int64 `json:"bytes"`
	Blocks [2]int   `json:"blocks"`
	label  string
}

func (c *changeLine) change() int64 { return c.Bytes[1] - c.Bytes[0] }

type stepLine struct {
	Step  int      `json:"step"`
	Peak  [2]int64 `json:"peak"`
	Final [2]int64 `json:"final"` // at the end of the step
}

// Run implements the command.
func (c *diffCmd) Run(s *streams) error {
	keys, err := holderKeys(c.By)
	if err != nil {
		return err
	}
	if err := checkInputs(append([]string{c.Before}, c.After...)); err != nil {
		return err
	}
	before, old, err := c.read(s, c.Before)
	if err != nil {
		s.fail(displayPath(c.Before), err)
		return exit(exitCode(err))
	}
	code, first := exitOK, true
	for _, path := range c.After {
		after, recent, err := c.read(s, path)
		if err != nil {
			s.fail(displayPath(path), err)
			code = max(code, exitCode(err))
			continue
		}
		for _, pair := range pairs(old, recent) {
			x := compare(before, after, pair, keys)
			x.among = len(old) > 1 || len(recent) > 1
			if c.MaxGrowth.exceeded(x.Requested[0], x.Requested[1]) {
				code = max(code, exitDiffers)
			}
			if c.JSON {
				if err := json.NewEncoder(s.out).Encode(x); err != nil {
					return err
				}
				continue
			}
			if !first {
				fmt.Fprintln(s.out)
			}
			first = false
			c.write(s.out, x)
		}
	}
	return ended(code)
}

// read reads a trace, and returns the memory of its devices at the moment.
func (c *diffCmd) read(s *streams, path string) (*input, []*holders.View, error) {
	p := newProgress(s.err, "reading "+displayPath(path))
	defer p.end()
	in, err := read(path, s.in, p)
	if err != nil {
		return nil, nil, explainInput(err)
	}
	if in.script != nil {
		return nil, nil, errors.New("diff reads memory snapshots, not scripts")
	}
	views, err := c.views(in.snapshot)
	return in, views, err
}

// pairs are the devices to compare: those of one ordinal, or, as in recordings of different ranks, one after another.
func pairs(before, after []*holders.View) (all [][2]*holders.View) {
	for _, b := range after {
		if i := slices.IndexFunc(before, func(a *holders.View) bool { return a.Device() == b.Device() }); i >= 0 {
			all = append(all, [2]*holders.View{before[i], b})
		}
	}
	if len(all) == 0 {
		for i := range min(len(before), len(after)) {
			all = append(all, [2]*holders.View{before[i], after[i]})
		}
	}
	return all
}

// compare compares two devices.
func compare(before, after *input, pair [2]*holders.View, keys []holders.Key) *comparison {
	a, b := pair[0], pair[1]
	x := &comparison{
		Before: before.path, After: after.path, Device: b.Device(), Moments: [2]string{a.Moment.Name, b.Moment.Name},
		Requested: [2]int64{a.Bytes, b.Bytes}, Change: b.Bytes - a.Bytes, By: keyNames(keys),
		Changes: []changeLine{}, Steps: []stepLine{}, views: pair, names: [2]string{before.name(), after.name()},
	}
	if x.names[0] == x.names[1] {
		x.names = [2]string{displayPath(before.path), displayPath(after.path)}
	}
	for _, d := range holders.Diff(a, b, keys...) {
		x.Changes = append(x.Changes, changeLine{
			d.Values, [2]int64{d.Before, d.After}, [2]int{d.BlocksBefore, d.BlocksAfter}, d.Label,
		})
	}
	for _, d := range holders.DiffSteps(a.History(), b.History()) {
		x.Steps = append(x.Steps, stepLine{
			d.Number, [2]int64{d.PeakBefore, d.PeakAfter}, [2]int64{d.FinalBefore, d.FinalAfter},
		})
	}
	return x
}
