package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ashlar-go/ashlar/internal/atomicfile"
	"github.com/ashlar-go/ashlar/view"
)

type viewCmd struct {
	Traces []string `arg:"" optional:"" name:"trace" help:"Memory snapshots of PyTorch or Ashlar; several are compared, or shown as the ranks of one job."`
	Port   uint16   `placeholder:"PORT" help:"The port to listen on (default: any that is free)."`
	NoOpen bool     `name:"no-open" help:"Do not open a browser; only print the address."`
	Attach string   `placeholder:"URL" help:"Show a running program, by its address."`
	Export string   `placeholder:"FILE" help:"Write the page instead, with the traces in it: as one file if the name ends in .html, else as a folder; - is standard output."`
	WhatIf []string `name:"what-if" placeholder:"SPEC" sep:"none" help:"With --export: compare this allocator, as in \"ashlar replay\". May be repeated."`
	Force  bool     `help:"Replace FILE if it exists, or write into a folder that is not empty."`
}

// Help implements kong.HelpProvider.
func (*viewCmd) Help() string {
	return `Opens a page in the browser that shows where the memory went: memory over time with every allocation, addresses over time with
the holes between blocks, the state and the holders at any moment, how other allocators and settings would have fared, and the
differences of several traces.

The page is served by this program and by nothing else. It needs no network. Only this machine can reach it, at an address with
a secret in it, which is printed. End the program with Ctrl-C.

With --export, the page is written as one HTML file (up to 64 MiB) or as a folder (up to 512 MiB), to be attached to a report of a
defect. It opens without this program. It has up to 6 levels of zoom, as many as there is room for; replays are in it only with
--what-if.

With --attach, the page follows a running program. A Go program registers its allocators with package view/live, which serves
under /debug/ashlar/ of http.DefaultServeMux. A PyTorch program calls ashlar.serve() of Ashlar's Python package, which returns the
address.

Examples:

    ashlar view run.pickle
    ashlar view rank*.pickle
    ashlar view --no-open --port 8000 run.pickle     # then ssh -L 8000:127.0.0.1:8000
    ashlar view --export report.html --what-if caching --what-if caching:expandable_segments:True oom.pickle
    ashlar view --attach http://127.0.0.1:6060`
}

// Run implements the command.
func (c *viewCmd) Run(s *streams) error {
	switch {
	case len(c.Traces) == 0 && c.Attach == "":
		return usageError{errors.New("want a trace, or --attach URL")}
	case len(c.Traces) > 0 && c.Attach != "":
		return usageError{errors.New("--attach: want no traces beside it")}
	case c.Attach != "" && c.Export != "":
		return usageError{errors.New("--export: want traces; --attach shows a running program")}
	case c.Export == "" && len(c.WhatIf) > 0:
		return usageError{errors.New("--what-if: want --export; the page itself has this comparison")}
	}
	if err := checkInputs(c.Traces); err != nil {
		return err
	}
	for _, spec := range c.WhatIf {
		if err := checkAllocator(spec); err != nil {
			return err
		}
	}
	if c.Export != "" {
		return c.export(s)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return c.serve(ctx, s)
}

// load reads the traces into sources of a server, one after another. A trace that cannot be read is reported, here and
// on the page. The error is an exit if there is one. begun is called when a trace has been read, or earlier, after the
// first bytes of a large file have shown that it is a trace.
func (c *viewCmd) load(s *streams, server *view.Server, begun func()) error {
	sources := make([]*view.Source, len(c.Traces))
	for i, path := range c.Traces {
		in := input{path: path}
		sources[i] = server.Open(in.name(), path)
	}
	code := exitOK
	for i, path := range c.Traces {
		p := newProgress(s.err, "reading "+displayPath(path))
		pieces := 0
		p.watch = func(done float64) {
			sources[i].Progress(done)
			if pieces++; pieces == 2 { // a file that is not a trace is refused after its first piece
				begun()
			}
		}
		err := c.loadOne(s, path, sources[i], p)
		p.end()
		if err == nil {
			begun()
		}
		if err != nil {
			s.fail(displayPath(path), err)
			code = max(code, exitCode(err))
		}
	}
	return ended(code)
}

// loadOne reads one trace.
func (c *viewCmd) loadOne(s *streams, path string, into *view.Source, p *progress) error {
	var in *input
	err := errors.New("view reads memory snapshots, not scripts")
	if !strings.HasSuffix(path, ".script") {
		in, err = readCompact(path, s.in, p)
	}
	if err != nil {
		err = explainInput(err)
		into.Fail(err)
		return err
	}
	return into.Set(in.snapshot)
}

// export writes the page: as one file or, if the name does not end in .html, as a folder.
func (c *viewCmd) export(s *streams) error {
	if c.Export != "-" && filepath.Ext(c.Export) != ".html" && filepath.Ext(c.Export) != ".htm" {
		return c.exportFolder(s)
	}
	out, err := s.openOutput(c.Export, c.Force, c.Traces...)
	if err != nil {
		return err
	}
	server := view.New(view.Options{Version: version()})
	if err := c.load(s, server, func() {}); err != nil {
		return err
	}
	return out.write(func(w io.Writer) error {
		return server.Export(w, view.ExportOptions{Specs: c.WhatIf})
	})
}

// exportFolder writes the page as a folder, which must be empty or not exist. It is made when the page is ready.
func (c *viewCmd) exportFolder(s *streams) error {
	folder := filepath.Clean(c.Export)
	if files, err := os.ReadDir(folder); err == nil && len(files) > 0 && !c.Force {
		return usageError{fmt.Errorf("--export %s: the folder is not empty; --force writes into it", displayPath(c.Export))}
	}
	if _, err := os.Stat(filepath.Dir(folder)); err != nil {
		return outputError{c.Export, err}
	}
	server := view.New(view.Options{Version: version()})
	if err := c.load(s, server, func() {}); err != nil {
		return err
	}
	o := atomicfile.Options{New: !c.Force, Created: removeOnSignals}
	write := func(name string, fill func(io.Writer) error) error {
		if err := os.Mkdir(folder, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return atomicfile.Write(filepath.Join(folder, name), o, fill)
	}
	if err := server.ExportFolder(write, view.ExportOptions{Specs: c.WhatIf}); err != nil {
		return outputError{c.Export, err}
	}
	return nil
}

// gcPercent is the garbage of the page's server, as a part of its memory.
const gcPercent = 10

// serve serves the page until ctx ends. It prints the address when there is something to show.
func (c *viewCmd) serve(ctx context.Context, s *streams) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.Port))
	if err != nil {
		return fmt.Errorf("--port %d: %w", c.Port, err)
	}
	// Recordings have few pointers, so that the garbage of them is found quickly. It would be as large as they are.
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	server := view.New(view.Options{Version: version(), Live: c.Attach != ""})
	serving := &http.Server{Handler: server.Handler(listener.Addr()), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- serving.Serve(listener) }()
	show := sync.OnceFunc(func() {
		url := server.URL(listener.Addr())
		fmt.Fprintf(s.out, "%s\n", url)
		s.out.flush()
		if !c.NoOpen {
			openBrowser(s.err, url)
		}
	})
	loading := make(chan error, 1)
	go func() {
		if c.Attach != "" {
			loading <- server.Attach(ctx, c.Attach, show)
			return
		}
		loading <- c.load(s, server, show)
	}()
	for {
		select {
		case err := <-loading:
			if err != nil && !server.Ready() { // nothing to show
				_ = serving.Close()
				return err
			}
			loading = nil
		case err := <-ended:
			return err
		case <-ctx.Done():
			return serving.Close()
		}
	}
}

// openBrowser opens a URL in the user's browser, if there is one.
func openBrowser(w io.Writer, url string) {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	command := exec.Command(name, args...)
	if err := command.Start(); err != nil {
		fmt.Fprintln(w, "ashlar: no browser was found; open the address above")
		return
	}
	go func() { _ = command.Wait() }()
}
