package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/ashlar-go/ashlar/snapshot"
)

type exportCmd struct {
	To       string `required:"" enum:"pickle,json,pprof,perfetto" placeholder:"FORMAT" help:"pickle, json, pprof or perfetto."`
	Output   string `short:"o" placeholder:"FILE" help:"Write to this file instead of standard output."`
	Snapshot string `arg:"" name:"trace" help:"A memory snapshot of PyTorch; - is standard input."`
}

// Help implements kong.HelpProvider.
func (*exportCmd) Help() string {
	return `Writes a memory snapshot in a form that another tool reads:

    pickle     for Python, torch.cuda._memory_viz and https://pytorch.org/memory_viz: protocol 4, not compressed
    json       the same dicts and lists as JSON; stacks are written out, so this may be large
    pprof      for go tool pprof: bytes and blocks, in use and allocated, by stack, with the labels device, stream, pool, tag
    perfetto   for https://ui.perfetto.dev and chrome://tracing: memory over time, blocks, segments, annotations

Examples:

    ashlar export --to pickle -o plain.pickle run.pickle.zst
    ashlar export --to json run.pickle | jq '.segments | length'
    ashlar export --to pprof -o run.pb.gz run.pickle && go tool pprof -http : run.pb.gz
    ashlar export --to perfetto -o run.json run.pickle`
}

// exporters write a snapshot in each format.
var exporters = map[string]func(*snapshot.Snapshot, io.Writer) error{
	"pickle":   (*snapshot.Snapshot).WritePickle,
	"json":     (*snapshot.Snapshot).WriteJSON,
	"pprof":    (*snapshot.Snapshot).WriteProfile,
	"perfetto": (*snapshot.Snapshot).WriteTimeline,
}

// Run implements the command.
func (c *exportCmd) Run(s *streams) error {
	if f, ok := s.out.w.(*os.File); ok && c.Output == "" && (c.To == "pickle" || c.To == "pprof") && term.IsTerminal(int(f.Fd())) {
		return usageError{fmt.Errorf("%s is not for a terminal: name a file with --output", c.To)}
	}
	traces := traceArgs{Traces: []string{c.Snapshot}}
	return traces.each(s, func(in *input, p *progress) error {
		if in.script != nil {
			return errors.New("a script has no addresses, so there is nothing to export; replay runs it")
		}
		p.at("writing " + c.To)
		var lost []string
		for _, skip := range in.snapshot.Skipped {
			lost = append(lost, fmt.Sprintf("%s (%s)", skip.What, plural(skip.Count, "time")))
		}
		if len(lost) > 0 {
			p.say("ashlar: not understood, and left out: " + clean(strings.Join(lost, ", "), 10*maxWord))
		}
		write := func(w io.Writer) error { return exporters[c.To](in.snapshot, w) }
		if c.Output == "" {
			err := write(s.out)
			p.end()
			return err
		}
		if err := writeFile(c.Output, write); err != nil {
			var failed *os.PathError
			if errors.As(err, &failed) {
				err = failed.Err
			}
			return fmt.Errorf("%s cannot be written: %w", displayPath(c.Output), err)
		}
		return nil
	})
}

// writeFile makes a file of what write writes, where links lead. What was there before stays until all is written, and
// its rights stay.
func writeFile(path string, write func(io.Writer) error) (err error) {
	before, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if before != nil && !before.Mode().IsRegular() { // /dev/null, a pipe
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	for {
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(path)
			to = dir + to
		}
		path = to
	}
	f, err := partial(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if before != nil {
		if err := f.Chmod(before.Mode().Perm()); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	w := bufio.NewWriterSize(f, 1<<20)
	failures := []error{write(w), w.Flush(), f.Close()}
	if i := slices.IndexFunc(failures, func(err error) bool { return err != nil }); i >= 0 {
		return failures[i]
	}
	return os.Rename(f.Name(), path)
}

// partial makes a file beside path, of a name that nothing has.
func partial(path string) (f *os.File, err error) {
	for i := range 1000 {
		f, err = os.OpenFile(fmt.Sprintf("%s.%d.partial", path, i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return f, err
}
