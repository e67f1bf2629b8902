// Command ashlar analyzes PyTorch's memory snapshots. It describes a snapshot (info), says why a program ran out of
// memory (explain), compares how other settings and allocators would have fared, with the minimum memory each needs
// (replay), searches for the settings that need the least (tune), checks that Ashlar's caching allocator does exactly
// what PyTorch's did (verify), shows recordings as a page (view), draws pictures (plot), and converts snapshots for
// other tools (export). It packs and plans memory (pack, plan), simulates programs in less memory than they need
// (remat), lists tensors in files (tensors), and lists, diagnoses and measures devices (devices, doctor, bench).
//
// Each subcommand is a struct in a file of its own, with its flags as fields and a Run method. They write results to
// standard output, and errors and progress to standard error, all of which run takes as parameters.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/alecthomas/kong"
	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
)

// Exit codes of all commands. With several files the highest applies. Those of signals are in removeOnSignal.
const (
	exitOK      = 0
	exitDiffers = 1 // verify: something differs; diff: more growth than --max-growth; doctor: a driver that was named cannot work
	exitUsage   = 2
	exitInput   = 3 // a file or a device cannot be used, or the output cannot be written
	exitNoRoom  = 4 // a device has too little memory; replay: no row completes; tune: no setting is enough
)

// exitCode is the code of an error.
func exitCode(err error) int {
	var parse *kong.ParseError
	var usage usageError
	var status exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &parse), errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, mem.ErrNoMemory), errors.Is(err, driver.ErrNoMemory), errors.Is(err, errNoRoom):
		return exitNoRoom
	}
	return exitInput
}

const description = `Analyze PyTorch's memory snapshots, and try other settings and allocators on them.

A TRACE is such a snapshot (plain, or compressed with gzip, zstd or xz), "-" for standard input, or for replay a text
file whose name ends in .script ("ashlar replay --help" has an example). To record a snapshot:

    torch.cuda.memory._record_memory_history(max_entries=10_000_000)   # before the first allocation
    ...
    torch.cuda.memory._dump_snapshot("run.pickle")

Sizes are written as 18.2GiB, 512k or 2097152.

Exit codes of all commands; with several files, the highest:

    0          success
    1          verify found a difference, diff more growth than is allowed, or doctor a driver that cannot work
    2          wrong usage, or an output that would replace a file
    3          a file or a device cannot be used, or the output cannot be written
    4          out of memory: no row of a replay completed, no setting is enough, or a device has too little memory
    130, 143   ended by SIGINT or SIGTERM: 128 and the signal's number

An output (-o FILE) never replaces the input, and another file only with --force. It is written completely or not at all.`

// commands is the command line.
type commands struct {
	Info       infoCmd       `cmd:"" help:"Describe a trace."`
	Explain    explainCmd    `cmd:"" help:"Say why a program ran out of memory, who held it, and what to change."`
	Replay     replayCmd     `cmd:"" help:"Replay a trace under several allocator settings and compare them."`
	Tune       tuneCmd       `cmd:"" help:"Search the allocator settings with which traces need the least memory."`
	Verify     verifyCmd     `cmd:"" help:"Replay a trace as it was recorded, and compare every address."`
	View       viewCmd       `cmd:"" help:"Show traces, or a running program, as a page in the browser."`
	Diff       diffCmd       `cmd:"" help:"Compare the memory of two runs: what grew and what is new, by line."`
	Export     exportCmd     `cmd:"" help:"Write a trace for other tools: PyTorch's viewer, jq, go tool pprof, browsers, DuckDB, Perfetto."`
	Plot       plotCmd       `cmd:"" help:"Draw a picture of a trace: memory over time, addresses, or a comparison."`
	Tensors    tensorsCmd    `cmd:"" help:"List the tensors in files, print them, or measure how fast they load."`
	Estimate   estimateCmd   `cmd:"" help:"Estimate the memory of a model before it runs, from its checkpoint's header."`
	Pack       packCmd       `cmd:"" help:"Pack blocks with known lifetimes, from a trace or a CSV file, into as little memory as possible."`
	Plan       planCmd       `cmd:"" help:"Place the blocks of a trace in one region, and write the plan for mem/planned."`
	Remat      rematCmd      `cmd:"" help:"Simulate programs that drop results and compute them again, in less memory than they need."`
	Devices    devicesCmd    `cmd:"" help:"List devices and their abilities."`
	Doctor     doctorCmd     `cmd:"" help:"Report what the drivers need, what was found, and how to fix it."`
	Bench      benchCmd      `cmd:"" help:"Measure the cost of the calls of a device."`
	Completion completionCmd `cmd:"" help:"Print a completion script for a shell."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

// streams are the input and the outputs of a command.
type streams struct {
	in  io.Reader
	out *page
	err io.Writer
}

// fail writes an error of one trace.
func (s *streams) fail(trace string, err error) { s.failNamed(fmt.Errorf("%s: %w", trace, err)) }

// failNamed writes an error that names its file.
func (s *streams) failNamed(err error) {
	s.out.flush()
	fmt.Fprintf(s.err, "ashlar: %s\n", cleanLines(err.Error()))
}

// An exit ends run with a code and without a message.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// ended returns the error of a command that has reported all failures of its files: nil, or the exit with their code.
func ended(code int) error {
	if code == exitOK {
		return nil
	}
	return exit(code)
}

// A usageError is wrong usage that the parser of the command line cannot see.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func main() { os.Exit(newCommandLine().run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// A commandLine runs commands, one at a time. What one was given, the next does not see.
type commandLine struct {
	commands *commands
	parser   *kong.Kong
}

// run is the program: it returns the exit code.
func (l *commandLine) run(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	out := newBufferedPage(stdout)
	defer func() {
		if err := out.failed(); err != nil {
			fmt.Fprintf(stderr, "ashlar: the output could not be written: %v\n", err)
			code = exitInput
		}
	}()
	l.reset(out, stderr)
	ctx, err := parse(l.parser, usualForms(args))
	if err == nil {
		err = ctx.Run(&streams{stdin, out, stderr}, l.parser)
	}
	out.flush() // before what is wrong
	code = exitCode(err)
	var status exit
	switch {
	case err == nil, errors.As(err, &status):
	case code == exitUsage:
		fmt.Fprintf(stderr, "ashlar: %s\nRun \"ashlar --help\" or \"ashlar COMMAND --help\" for usage.\n",
			usageText(err, args))
	default:
		fmt.Fprintf(stderr, "ashlar: %s\n", cleanLines(err.Error()))
	}
	return code
}

// parse parses a command line. After --help, which the parser ends with a panic, the error is an exit.
func parse(parser *kong.Kong, args []string) (ctx *kong.Context, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exit:
			err = e
		default:
			panic(e)
		}
	}()
	return parser.Parse(args)
}

// usualForms converts common forms such as "ashlar help" and "ashlar --version" to commands and flags.
func usualForms(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}

func newCommandLine() *commandLine {
	l := &commandLine{commands: new(commands)}
	l.parser = kong.Must(l.commands,
		kong.Name("ashlar"),
		kong.Description(description),
		kong.Exit(func(code int) { panic(exit(code)) }), // after --help
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	return l
}

// reset forgets the last command. The parser clears flags itself, but not the other fields, nor which flags were given.
func (l *commandLine) reset(stdout, stderr io.Writer) {
	*l.commands = commands{}
	l.parser.Stdout, l.parser.Stderr = stdout, stderr
	err := kong.Visit(l.parser.Model, func(v kong.Visitable, next kong.Next) error {
		switch v := v.(type) {
		case *kong.Node:
			v.Active = false
		case *kong.Value:
			v.Active, v.Set = false, false
		}
		return next(nil)
	})
	if err != nil {
		panic(err)
	}
}
