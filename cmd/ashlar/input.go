package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/countio"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A size is a number of bytes on the command line, no more than a device can have: 18.2GiB, 512k, 2097152.
type size int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *size) UnmarshalText(text []byte) error {
	n, err := bytesize.Parse(string(text))
	if err == nil && (n == 0 || n > sim.MaxTotal) {
		err = fmt.Errorf("size %q: want 1 byte to %s", text, bytesize.Exact(sim.MaxTotal))
	}
	*s = size(n)
	return err
}

// traceArgs are the trace arguments of a command.
type traceArgs struct {
	Traces []string `arg:"" name:"trace" help:"Memory snapshots of PyTorch; - is standard input."`
}

// An input is a trace that was read: a snapshot or a script.
type input struct {
	path     string // as given
	bytes    int64  // of the file
	snapshot *snapshot.Snapshot
	script   *trace.Script
	surveys  map[int]*survey // by device, in place of events; nil if snapshot has them
	streamed *streamed       // in place of events; nil if snapshot has them
}

// name is a short name for tables: the file's, without directories and the usual endings.
func (in *input) name() string {
	if in.path == "-" {
		return displayPath(in.path)
	}
	name := filepath.Base(in.path)
	for _, ending := range []string{".zst", ".gz", ".xz", ".pickle", ".pkl", ".script"} {
		if cut := strings.TrimSuffix(name, ending); cut != "" {
			name = cut
		}
	}
	return clean(name, maxWhere)
}

// displayPath is a path argument as messages show it.
func displayPath(path string) string {
	if path == "-" {
		return "standard input"
	}
	return clean(path, maxWord)
}

// checkInputs reports paths of which several are standard input.
func checkInputs(paths []string) error {
	if i := slices.Index(paths, "-"); i >= 0 && slices.Contains(paths[i+1:], "-") {
		return usageError{errors.New("standard input (-) can be read once, and is given twice")}
	}
	return nil
}

// each reads the traces one after another and calls do for each. A trace that cannot be read or used is
// reported and sets the exit code; the others are still processed.
// do must call progress.end before it prints.
func (t *traceArgs) each(s *streams, do func(*input, *progress) error) error {
	return t.eachRead(s, read, do)
}

// eachRead is each with a function that reads a trace.
func (t *traceArgs) eachRead(
	s *streams, read func(path string, stdin io.Reader, p *progress) (*input, error), do func(*input, *progress) error,
) error {
	if err := checkInputs(t.Traces); err != nil {
		return err
	}
	code := exitOK
	for _, path := range t.Traces {
		if !s.out.flush() {
			break // the output is closed
		}
		p := newProgress(s.err, "reading "+displayPath(path))
		in, err := read(path, s.in, p)
		if err == nil {
			err = do(in, p)
		}
		p.end()
		var usage usageError
		var unwritten outputError
		var status exit
		switch {
		case err == nil:
		case errors.As(err, &usage), errors.As(err, &unwritten):
			return err
		case errors.As(err, &status):
			code = max(code, int(status))
		default:
			s.fail(displayPath(path), explainInput(err))
			code = max(code, exitCode(err))
		}
	}
	return ended(code)
}

// read reads a trace as a stream, so a file that is not a trace is refused after its first bytes.
func read(path string, stdin io.Reader, p *progress) (*input, error) {
	return readWith(path, stdin, p, snapshot.Read)
}

// readCompact is read for commands that do not need trace.Trace.Events.
func readCompact(path string, stdin io.Reader, p *progress) (*input, error) {
	return readWith(path, stdin, p, func(r io.Reader) (*snapshot.Snapshot, error) {
		return snapshot.ReadCompact(r, snapshot.Limits{})
	})
}

func readWith(
	path string, stdin io.Reader, p *progress, readSnapshot func(io.Reader) (*snapshot.Snapshot, error),
) (*input, error) {
	from, closeFile, err := openInput(path, stdin, p)
	if err != nil {
		return nil, err
	}
	defer closeFile()
	in := &input{path: path}
	counted := &countio.Reader{R: from}
	if strings.HasSuffix(path, ".script") {
		in.script, err = trace.ReadScript(counted)
	} else {
		in.snapshot, err = readSnapshot(counted)
	}
	in.bytes = counted.N
	return in, withoutPath(err)
}

// openInput opens a path; "-" is standard input. Progress shows how much of a file was read.
func openInput(path string, stdin io.Reader, p *progress) (r io.Reader, closeFile func() error, err error) {
	if path == "-" {
		return stdin, func() error { return nil }, nil
	}
	opened := p.awaitWriter(path)
	f, err := os.Open(path)
	opened()
	if err != nil {
		return nil, nil, withoutPath(err)
	}
	return p.reader(f), f.Close, nil
}

// withoutPath returns a system error without the path of the file, which the caller reports.
func withoutPath(err error) error {
	var failed *os.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// works returns the work of each device in the trace.
func (in *input) works() ([]*replay.Work, error) {
	if in.script != nil {
		w, err := replay.ScriptWork(in.script)
		return []*replay.Work{w}, err
	}
	return replay.Works(in.snapshot)
}

// chooseDevice returns the index of the device that --ordinal names, or that of the only one if ordinal is negative.
func chooseDevice(devices []int, ordinal int) (int, error) {
	if i := slices.Index(devices, ordinal); i >= 0 {
		return i, nil
	}
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(devices), "[]"), " ", ", ")
	if ordinal >= 0 {
		return 0, usageError{fmt.Errorf("--ordinal %d: the trace has no such device: want one of %s", ordinal, list)}
	}
	if len(devices) > 1 {
		return 0, usageError{fmt.Errorf("the trace has several devices: choose one with --ordinal, of %s", list)}
	}
	return 0, nil
}

// explainInput adds a remedy to an error that has none.
func explainInput(err error) error {
	var pickled *pickle.Error
	var invalid *snapshot.Error
	var script *trace.ScriptError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, pickle.ErrTruncated):
		return fmt.Errorf("%w: the file ends early; copy or record it again", err)
	case errors.Is(err, os.ErrNotExist), errors.As(err, &pickled), errors.As(err, &invalid):
		return fmt.Errorf("%w; a trace is a file that torch.cuda.memory._dump_snapshot wrote, or a script, whose "+
			"name ends in .script", err)
	case errors.As(err, &script) && script.Line == 1:
		return fmt.Errorf("%w; a script is text with one request a line: \"ashlar replay --help\" has an example", err)
	case errors.Is(err, verify.ErrLateStart):
		return fmt.Errorf("%w: verify needs all of it, from the first allocation: call "+
			"torch.cuda.memory._record_memory_history(max_entries=10_000_000) at the start of the program; "+
			"info and replay work without it", err)
	}
	return err
}
