// Command compare measures Ashlar's allocators, copies and operations beside PyTorch's and the CUDA runtime's, in one
// run on one machine, and says which of Ashlar's targets the figures meet.
//
// # How it measures
//
// Each side is a worker: a process that reads one question a line from its standard input, does the work, takes the
// time itself and answers with one line of JSON.
//
//	native    bench/native/native.cpp, built by this command: PyTorch's CUDACachingAllocator in C++, without Python;
//	          cudaMallocAsync; copies by the CUDA runtime and driver
//	expanding the same program with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
//	dropin    bench/python/dropin.py: the same C++ in a process of Python in which Ashlar has replaced PyTorch's allocator
//	python    bench/python/worker.py: copies and operations as PyTorch's users write them. It also says where PyTorch's
//	          headers are
//	go        this program with -worker: Ashlar on the device that -device names
//
// Questions are words: "warm caching 4096 100" is "on the allocator caching, allocate and free 4,096 bytes for 100 ms".
// The same question goes to every side in turn, A B A B, as often as -reps says, so that what disturbs the machine
// disturbs all sides. No two sides work at the same time. The results are medians, with the least and the greatest.
//
// Random sizes come from sequence.go and native/sequence.hpp, which give the same numbers. Every answer about them
// carries their checksum, and one that does not agree is a failure.
//
// # What it does not do
//
// It does not fix clocks or processors, does not measure a model's training, and does not decide whether a difference
// is noise: the spread is printed. A side that cannot be built or started, and a question that fails, are listed as
// failures and the rest goes on.
//
// # Use
//
//	go build -tags libashlar -buildmode=c-shared -o bin/libashlar.so ./cmd/libashlar
//	ASHLAR_LIBRARY=$PWD/bin/libashlar.so go run ./bench/compare -docs docs/benchmarks.md
//	go run ./bench/compare -what operations -docs docs/benchmarks-operations.md
//
// on a machine with PyTorch, CUDA's headers, a C++ compiler and Go. Without Go there, build the program elsewhere with
// CGO_ENABLED=0 and bring bench/ along: ./compare -dir bench -o results.json. Elsewhere again,
// compare -render results.json -docs docs/benchmarks.md writes the tables.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

type options struct {
	dir, python, cxx, device string
	out, docs, render        string
	only                     string
	worker                   bool
	settings                 settings
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "compare:", err)
		}
		os.Exit(1)
	}
}

// run is the program: tables go to stdout, progress to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	switch {
	case o.worker:
		return serve(o.device, stdin, stdout)
	case o.render != "":
		r, err := readResults(o.render)
		if err != nil {
			return err
		}
		if o.settings.What != r.Settings.What { // the run had more
			r.Settings.What = o.settings.What
			r.keep(r.Settings.parts())
			if err := r.write(o.out); err != nil {
				return err
			}
		}
		return show(r, o.docs, stdout)
	}
	r := &results{
		Command: commandLine(args), Started: time.Now().UTC().Format(time.RFC3339),
		Settings: o.settings, Machine: map[string]string{},
	}
	began := time.Now()
	if err := measure(ctx, o, r, stderr); err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	if err := r.write(o.out); err != nil {
		return err
	}
	return show(r, o.docs, stdout)
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.dir, "dir", "bench", "where native/ and python/ are")
	f.StringVar(&o.python, "python", "python3", "the Python that has PyTorch; \"none\" measures Ashlar alone")
	f.StringVar(&o.cxx, "cxx", "g++", "the C++ compiler")
	f.StringVar(&o.device, "device", "cuda:0", "Ashlar's device")
	f.StringVar(&o.out, "o", "", "write the results to this file, after every part")
	f.StringVar(&o.docs, "docs", "", "put the tables between the markers of this file")
	f.StringVar(&o.render, "render", "", "measure nothing: take the results from this file")
	f.BoolVar(&o.worker, "worker", false, "answer questions on standard input")
	s := &o.settings
	f.StringVar(&s.What, "what", "", "operations measures those on tensors; otherwise allocators and copies are "+
		"measured")
	f.StringVar(&o.only, "only", "", "measure only the rows whose names this regular expression matches")
	f.IntVar(&s.Reps, "reps", 5, "how often each side is asked each question")
	f.IntVar(&s.Millis, "ms", 100, "milliseconds of each measurement")
	f.IntVar(&s.Live, "live", 4096, "live blocks that are replaced")
	f.IntVar(&s.WarmRounds, "warm", 64, "rounds of replacements that are not measured")
	f.IntVar(&s.Rounds, "rounds", 32, "rounds of replacements that are")
	f.Uint64Var(&s.Seed, "seed", 1, "of the sizes and of the choice of blocks")
	f.Int64Var(&s.Largest, "largest", 1<<30, "bytes of the largest copy")
	f.IntVar(&s.Threads, "threads", 16, "threads at most")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.python == "none" {
		o.python = ""
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q: there are flags only", f.Arg(0))
	}
	if _, err := regexp.Compile(o.only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	if s.What != "" && s.What != operations {
		return o, fmt.Errorf("-what %s: want operations, or nothing", s.What)
	}
	if s.Reps < 1 || s.Millis < 1 || s.Live < 1 || s.WarmRounds < 0 || s.Rounds < 1 || s.Largest < 4096 ||
		s.Threads < 1 {
		return o, errors.New("-reps, -ms, -live, -rounds and -threads are at least 1, -largest at least 4096")
	}
	return o, nil
}

// commandLine is the command as one could type it. Of files that are named from the root of one machine it has the last
// part.
func commandLine(args []string) string {
	line := "compare"
	for _, a := range args {
		if filepath.IsAbs(a) {
			a = filepath.Base(a)
		}
		if a == "" || strings.ContainsAny(a, " '\"$&;()<>|*?\\") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		line += " " + a
	}
	return line
}

// show prints the tables, and puts them into the document if there is one.
func show(r *results, docs string, stdout io.Writer) error {
	tables := r.tables()
	for _, t := range tables {
		if _, err := fmt.Fprintf(stdout, "%s\n\n%s\n", t.title, t.text); err != nil {
			return err
		}
	}
	if docs == "" {
		return nil
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		return fmt.Errorf("read the document: %w", err)
	}
	filled, err := fill(string(text), tables)
	if err != nil {
		return fmt.Errorf("%s: %w", docs, err)
	}
	if err := os.WriteFile(docs, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}

func readResults(name string) (*results, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	r := &results{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read results: %s: %w", name, err)
	}
	return r, nil
}
