package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/ashlar-go/ashlar/internal/atomicfile"
)

// An outputFile is a file that a command writes (-o FILE). Every command that writes one keeps to the same rule: the
// input is never replaced, another file only with --force, and a file is written completely or not at all.
type outputFile struct {
	path   string
	force  bool
	stdout io.Writer // what is written to if path names standard output; else nil
}

// An outputError reports a file that could not be written. It wraps no error, because the cause is not an input.
type outputError struct {
	path string
	err  error
}

func (e outputError) Error() string {
	return fmt.Sprintf("%s cannot be written: %v", displayOutput(e.path), withoutPath(e.err))
}

// displayOutput is the argument of -o as messages show it.
func displayOutput(path string) string {
	if path == "-" {
		return "standard output"
	}
	return displayPath(path)
}

// openOutput checks the argument of -o before the work begins: it must not be one of the inputs, by any name or link,
// and may exist only with force; and its folder must permit a new file. "-" is standard output; an empty path means no
// output.
func (s *streams) openOutput(path string, force bool, inputs ...string) (*outputFile, error) {
	o := &outputFile{path: path, force: force}
	switch path {
	case "":
		return nil, nil
	case "-":
		o.stdout = s.out
		return o, nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return o.checked()
	case err != nil:
		return nil, outputError{path, err}
	case info.IsDir():
		return nil, outputError{path, syscall.EISDIR}
	case !info.Mode().IsRegular(): // /dev/null, a pipe
		return o, nil
	}
	for _, input := range inputs {
		if from, err := s.stat(input); err == nil && os.SameFile(from, info) {
			return nil, usageError{fmt.Errorf("--output %s: that is the input", displayPath(path))}
		}
	}
	if f, ok := s.out.w.(*os.File); ok {
		if to, err := f.Stat(); err == nil && os.SameFile(to, info) { // /dev/stdout, redirected
			o.stdout = s.out
			return o, nil
		}
	}
	if !force {
		return nil, usageError{fmt.Errorf("--output %s: the file exists; --force replaces it", displayPath(path))}
	}
	return o.checked()
}

// checked returns the output, or the error if its folder does not permit a new file.
func (o *outputFile) checked() (*outputFile, error) {
	if err := atomicfile.Check(o.path); err != nil {
		return nil, outputError{o.path, err}
	}
	return o, nil
}

// stat returns the os.FileInfo of an input; "-" is standard input.
func (s *streams) stat(input string) (os.FileInfo, error) {
	if input != "-" {
		return os.Stat(input)
	}
	if f, ok := s.in.(*os.File); ok {
		return f.Stat()
	}
	return nil, os.ErrNotExist
}

// report is where a command prints that also writes this file: not into it.
func (o *outputFile) report(s *streams) *page {
	if o != nil && o.stdout != nil {
		return newPage(s.err)
	}
	return s.out
}

// specFiles are the files that the spec of a device names.
func specFiles(spec string) []string {
	_, args, _ := strings.Cut(spec, ":")
	for setting := range strings.SplitSeq(args, ",") {
		if path, ok := strings.CutPrefix(strings.TrimSpace(setting), "cost="); ok && path != "h200" && path != "none" {
			return []string{path}
		}
	}
	return nil
}

// write creates the file with the output of fill. The error is an outputError.
func (o *outputFile) write(fill func(io.Writer) error) error {
	var err error
	if o.stdout != nil {
		err = fill(o.stdout)
	} else if info, statErr := os.Stat(o.path); statErr == nil && !info.Mode().IsRegular() {
		err = o.fillInPlace(fill)
	} else {
		err = atomicfile.Write(o.path, atomicfile.Options{New: !o.force, Created: removeOnSignals}, fill)
	}
	if err != nil {
		return outputError{o.path, err}
	}
	return nil
}

// fillInPlace writes to a path that is not a regular file.
func (o *outputFile) fillInPlace(fill func(io.Writer) error) error {
	f, err := os.OpenFile(o.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

// exitSignal plus the number of a signal is the exit code of a program that the signal ends, as in shells.
const exitSignal = 128

// removeOnSignals makes a signal that ends the program remove f first, until release returns; after such a signal
// release does not return. Signals that the program was started to ignore stay ignored.
func removeOnSignals(f *os.File) (release func()) {
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	done, released := make(chan struct{}), make(chan struct{})
	go func() {
		removeOnSignal(f, signals, done)
		close(released)
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-released
	}
}

// removeOnSignal waits for a signal, removes f and ends the program. It returns when done is closed and no signal came.
func removeOnSignal(f *os.File, signals <-chan os.Signal, done <-chan struct{}) {
	var s os.Signal
	select {
	case s = <-signals:
	case <-done:
		select {
		case s = <-signals: // both came
		default:
			return
		}
	}
	_ = f.Close() // some systems remove no open file
	_ = os.Remove(f.Name())
	os.Exit(exitSignal + int(s.(syscall.Signal)))
}
