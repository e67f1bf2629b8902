package main

import (
	"errors"
	"io"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A streamed is an input whose events are not kept. Its file is read twice: for all but the events, and for the events.
type streamed struct {
	*snapshot.Scanned
	path    string
	program *trace.Program        // for a script: without the ops of events; else nil
	watcher *trace.ProgramWatcher // that found the program
}

// streams reports whether the format is written without keeping the events.
func (c *exportCmd) streams() bool {
	return c.At == "" && (c.To == "jsonl" || c.To == "script" && c.Ordinal < 0) && canReadAgain(c.Snapshot)
}

// readStreamed reads all but the events of a trace. If that is not enough, it reads the trace whole.
func (c *exportCmd) readStreamed(path string, stdin io.Reader, p *progress) (*input, error) {
	if !c.streams() {
		return readCompact(path, stdin, p)
	}
	x := &streamed{path: path, watcher: &trace.ProgramWatcher{Options: programOptions}}
	watch := func([]trace.Event) {}
	if c.To == "script" {
		watch = x.watcher.Watch
	}
	in, err := readWith(path, stdin, p, func(r io.Reader) (_ *snapshot.Snapshot, err error) {
		if x.Scanned, err = snapshot.Scan(r, snapshot.Limits{}, watch); err != nil {
			return nil, err
		}
		return x.Snapshot, nil
	})
	if err == nil && c.To == "script" {
		err = x.derive()
	}
	if errors.Is(err, snapshot.ErrNotScanned) || err == nil && x.Events == 0 {
		return readCompact(path, stdin, p)
	}
	if err != nil {
		return nil, err
	}
	in.streamed = x
	return in, nil
}

// programOptions are those of exported scripts.
var programOptions = trace.ProgramOptions{Attempts: true}

// derive derives the program.
func (x *streamed) derive() (err error) {
	if x.Events == 0 {
		return nil
	}
	o := x.ProgramOptions(x.Device)
	if o.Attempts = true; o.PoolOf != nil && !x.Traces[x.Device].PoolsKnown {
		return snapshot.ErrNotScanned
	}
	if x.program, err = x.watcher.Program(x.Traces[x.Device], x.Numbers, o); x.program == nil && err == nil {
		return snapshot.ErrNotScanned
	}
	return err
}

// write writes the trace in the format.
func (x *streamed) write(w io.Writer, p *progress) error {
	r, closeFile, err := openInput(x.path, nil, p)
	if err != nil {
		return err
	}
	defer closeFile()
	if x.program == nil {
		return x.WriteJSONLines(w, r, snapshot.Limits{})
	}
	return x.writeScript(w, r)
}

// writeScript writes the ops of the prelude and, as they are read, those of the events.
func (x *streamed) writeScript(w io.Writer, r io.Reader) error {
	script := x.program.ScriptWriter(w)
	for i := range x.program.Ops {
		script.Add(&x.program.Ops[i])
	}
	written := true
	watcher := &trace.ProgramWatcher{Options: programOptions, Op: func(op trace.Op) {
		x.watcher.Replace(&op, trace.Numbers{})
		written = script.Add(&op)
	}}
	err := x.Again(r, snapshot.Limits{}, func(events []trace.Event) bool {
		watcher.Watch(events)
		return written
	})
	if err == nil && written {
		_, err = watcher.Program(x.Traces[x.Device], trace.Numbers{}, x.ProgramOptions(x.Device))
	}
	if err != nil {
		return err
	}
	return script.Close()
}
