package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/fit/pack"
	"github.com/ashlar-go/ashlar/trace"
)

type packCmd struct {
	Files  []string      `arg:"" name:"file" help:"Instances in CSV, or traces; - is standard input."`
	Time   time.Duration `default:"10s" placeholder:"TIME" help:"Time to search for each instance (default: ${default}); with 0s only the quick heuristics are tried."`
	Seed   uint64        `placeholder:"N" help:"Seed of the random choices of the search (default: 0)."`
	Align  size          `default:"512" placeholder:"SIZE" help:"Sizes in a trace are rounded up to a multiple of this (default: ${default}); 1 for exact bytes."`
	Output string        `short:"o" placeholder:"FILE" help:"Write the packing to FILE as CSV (- is standard output); for a single instance."`
	Force  bool          `help:"Replace FILE if it exists."`
	JSON   bool          `name:"json" help:"Print one JSON object for each instance."`
}

// Help implements kong.HelpProvider.
func (*packCmd) Help() string {
	return `Places blocks with known lifetimes in as little memory as possible, and prints the gap to the lower bound: the largest sum of
sizes that are live at one moment.

A FILE is an instance in the format of google/minimalloc: CSV with the columns id, lower, upper and size, for a buffer that is
live during [lower, upper). Or it is a trace: a snapshot or a script, see "ashlar --help". Each of its devices is an instance
with blocks by number and times that count requests. Requests that failed when they were recorded are left out.

The last column is "bound reached"; "optimal" if the bound is lower, but it was proved that no packing is smaller; or "best
so far" if the time was up. The gap is relative to the proved bound. The output has an additional column offset, and is
checked before it is written. Two searches run at the same time, on two processors if there are as many.

Examples:

    ashlar pack run.pickle
    ashlar pack --time 1m -o packed.csv instance.csv
    ashlar pack --time 0s --align 1 -o instance.csv run.pickle
    ashlar pack --json *.csv | jq 'select(.proved == "best so far") | [.instance, .ratio]'`
}

// packLine is the output of --json.
type packLine struct {
	Instance string  `json:"instance"`
	Buffers  int     `json:"buffers"`
	Bound    int64   `json:"bound"`  // the most that is alive at one moment
	Least    int64   `json:"least"`  // no packing is lower: the bound, or more where that was proved
	Height   int64   `json:"height"` // of the packing
	Ratio    float64 `json:"ratio"`  // of the height to the bound
	Gap      float64 `json:"gap"`    // height/least - 1
	Seconds  float64 `json:"seconds"`
	Proved   string  `json:"proved"` // "bound reached", "optimal" or "best so far"
}

// An instance is the problem of one table row.
type instance struct {
	name    string
	buffers []pack.Buffer
}

// Run implements the command.
func (c *packCmd) Run(s *streams) error {
	if c.Time < 0 {
		return usageError{fmt.Errorf("--time %v: want no less than 0", c.Time)}
	}
	if c.Output != "" && len(c.Files) > 1 {
		return usageError{fmt.Errorf("-o takes one instance, and there are %d files", len(c.Files))}
	}
	if err := checkInputs(c.Files); err != nil {
		return err
	}
	out, err := s.openOutput(c.Output, c.Force, c.Files...)
	if err != nil {
		return err
	}
	to := out.report(s)
	t := table{
		header:   []string{"instance", "buffers", "bound", "height", "ratio", "gap", "time", "proved"},
		optional: []int{5, 6, 1}, marked: -1,
	}
	code := exitOK
	for _, path := range c.Files {
		if !s.out.flush() {
			break // the output is closed
		}
		lines, err := c.packFile(s, path, out)
		for i := range lines {
			if c.JSON {
				if err := json.NewEncoder(to).Encode(&lines[i]); err != nil {
					return err
				}
			}
			t.rows = append(t.rows, lines[i].row())
		}
		var unwritten outputError
		if errors.As(err, &unwritten) {
			return err
		}
		if err != nil {
			s.fail(displayPath(path), err)
			code = max(code, exitCode(err))
		}
	}
	if !c.JSON && len(t.rows) > 0 {
		t.write(to)
	}
	return ended(code)
}

// packFile packs the instances in a file. With an error it returns the results before it.
func (c *packCmd) packFile(s *streams, path string, out *outputFile) ([]packLine, error) {
	p := newProgress(s.err, "reading "+displayPath(path))
	defer p.end()
	instances, err := readInstances(path, s.in, p, int64(c.Align))
	if err != nil {
		return nil, err
	}
	if out != nil && len(instances) > 1 {
		return nil, fmt.Errorf("%d devices: -o takes one instance", len(instances))
	}
	var lines []packLine
	for _, in := range instances {
		p.at("packing " + in.name)
		line, offsets, err := c.pack(in)
		if err != nil {
			return lines, err
		}
		if out != nil {
			if err := out.write(func(w io.Writer) error { return pack.WriteCSV(w, in.buffers, offsets) }); err != nil {
				return lines, err
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// pack packs one instance and checks the packing with independent code.
func (c *packCmd) pack(in instance) (packLine, []int64, error) {
	ctx, o := context.Background(), pack.Options{Seed: c.Seed}
	if c.Time > 0 {
		o.Steps = -1
		limited, cancel := context.WithTimeout(ctx, c.Time)
		defer cancel()
		ctx = limited
	}
	begun := now()
	r, err := pack.Pack(ctx, in.buffers, o)
	if err != nil {
		return packLine{}, nil, err
	}
	seconds := now().Sub(begun).Seconds()
	if height, err := pack.Validate(in.buffers, r.Offsets); err != nil || height != r.Height {
		return packLine{}, nil, fmt.Errorf("the packing of height %d is wrong, please report that: height %d, %v",
			r.Height, height, err)
	}
	line := packLine{
		Instance: in.name, Buffers: len(in.buffers), Bound: r.Bound, Least: r.Least, Height: r.Height, Ratio: 1,
		Seconds: seconds,
		Proved:  "best so far",
	}
	if r.Height > 0 {
		line.Ratio, line.Gap = float64(r.Height)/float64(r.Bound), float64(r.Height-r.Least)/float64(r.Least)
	}
	switch r.Height {
	case r.Bound:
		line.Proved = "bound reached"
	case r.Least:
		line.Proved = "optimal"
	}
	return line, r.Offsets, nil
}

// row is the line in the table. A ratio above 1 and a gap above 0 % are never rounded down to that.
func (l *packLine) row() []string {
	ratio, gap := fmt.Sprintf("%.4f", l.Ratio), fmt.Sprintf("%.2f %%", 100*l.Gap)
	if l.Ratio > 1 && ratio == "1.0000" {
		ratio = "1.0001"
	}
	if l.Gap > 0 && gap == "0.00 %" {
		gap = "0.01 %"
	}
	return []string{
		l.Instance, count(l.Buffers), count(l.Bound), count(l.Height), ratio, gap,
		duration(time.Duration(l.Seconds * float64(time.Second))), l.Proved,
	}
}

// readInstances reads the instances of a file.
func readInstances(path string, stdin io.Reader, p *progress, align int64) ([]instance, error) {
	if path == "-" {
		buffered := bufio.NewReaderSize(stdin, maxTableHeader)
		if isTable(buffered) {
			return readTable(displayPath(path), buffered)
		}
		stdin = buffered
	} else if strings.EqualFold(filepath.Ext(path), ".csv") {
		f, closeFile, err := openInput(path, nil, p)
		if err != nil {
			return nil, err
		}
		defer closeFile()
		base := filepath.Base(path)
		return readTable(clean(base[:len(base)-len(".csv")], maxWhere), f)
	}
	in, err := read(path, stdin, p)
	if err != nil {
		return nil, explainInput(err)
	}
	works, err := in.works()
	if err != nil {
		return nil, explainInput(err)
	}
	var instances []instance
	for _, w := range works {
		name := in.name()
		if len(works) > 1 {
			name += fmt.Sprintf(", device %d", w.Device)
		}
		buffers, err := buffersOf(w.Program, align)
		if err != nil {
			return nil, err
		}
		instances = append(instances, instance{name, buffers})
	}
	return instances, nil
}

// maxTableHeader is the number of bytes of standard input that are searched for the header of a table.
const maxTableHeader = 4 << 10

// isTable reports whether the first line has a column "lower". The word alone is not enough, since traces contain
// names.
func isTable(r *bufio.Reader) bool {
	start, _ := r.Peek(maxTableHeader) // an error comes again when the rest is read
	header, _, _ := bytes.Cut(start, []byte("\n"))
	return slices.ContainsFunc(bytes.Split(header, []byte(",")), func(name []byte) bool {
		return string(bytes.Trim(name, "\ufeff\" \t\r")) == "lower"
	})
}

func readTable(name string, r io.Reader) ([]instance, error) {
	buffers, _, err := pack.ReadCSV(r)
	return []instance{{name, buffers}}, withoutPath(err)
}

// buffersOf returns the blocks of a program: each lives from the op that allocates it to the one after which nothing
// uses it any more. Those of no bytes need no place.
func buffersOf(p *trace.Program, align int64) ([]pack.Buffer, error) {
	buffers := make([]pack.Buffer, 0, p.Blocks)
	index := make([]int, p.Blocks)
	for at, op := range p.Ops {
		switch op.Kind {
		case trace.OpAlloc:
			index[op.Block] = -1
			if op.Size <= 0 {
				continue
			}
			size := op.Size + (align-op.Size%align)%align
			if size < 0 {
				return nil, fmt.Errorf("block %d of %d bytes cannot be rounded up to a multiple of %d", op.Block,
					op.Size, align)
			}
			index[op.Block] = len(buffers)
			buffers = append(buffers, pack.Buffer{
				ID: strconv.Itoa(int(op.Block)), Lower: int64(at), Upper: int64(len(p.Ops)), Size: size,
			})
		case trace.OpFree, trace.OpComplete:
			if i := index[op.Block]; i >= 0 {
				buffers[i].Upper = int64(at)
			}
		}
	}
	return buffers, nil
}
