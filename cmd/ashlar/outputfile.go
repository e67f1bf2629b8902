package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
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
// and may exist only with force. "-" is standard output; an empty path means no output. No file is opened yet.
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
		if dir, _ := filepath.Split(o.target()); dir != "" {
			if _, err := os.Stat(dir); err != nil {
				return nil, outputError{path, err}
			}
		}
		return o, nil
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
		err = o.replace(info, fill)
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

// replace writes a temporary file, brings it to the disk and renames it. What was there before, if anything, stays
// until then, and the new file has its rights. A failure and a signal that ends the program remove the temporary file.
func (o *outputFile) replace(before os.FileInfo, fill func(io.Writer) error) error {
	target := o.target()
	f, release, err := createPartial(target)
	if err != nil {
		return err
	}
	renamed := false
	defer func() { // when fill panics, too
		release()
		if !renamed {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if before != nil {
		if err := f.Chmod(before.Mode().Perm()); err != nil {
			return err
		}
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for _, step := range []func() error{func() error { return fill(w) }, w.Flush, f.Sync, f.Close} {
		if err := step(); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(target); err == nil && !o.force { // it was not there before
		return os.ErrExist
	}
	err = os.Rename(f.Name(), target)
	renamed = err == nil
	return err
}

// target follows links; the result need not exist.
func (o *outputFile) target() string {
	path := o.path
	for range 255 { // more links than any system follows
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(path)
			to = dir + to // not cleaned: a name before ".." may be a link
		}
		path = to
	}
	return path
}

// exitSignal plus the number of a signal is the exit code of a program that the signal ends, as in shells.
const exitSignal = 128

// createPartial makes a file beside path, of a name that nothing has. Until release returns, a signal that ends the
// program removes it first; after such a signal release does not return. Signals that the program was started to ignore
// stay ignored.
func createPartial(path string) (f *os.File, release func(), err error) {
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	for i := range 1000 {
		f, err = os.OpenFile(fmt.Sprintf("%s.%d.partial", path, i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	if err != nil {
		signal.Stop(signals)
		return nil, nil, err
	}
	done, released := make(chan struct{}), make(chan struct{})
	go func() {
		removeOnSignal(f, signals, done)
		close(released)
	}()
	return f, func() {
		signal.Stop(signals)
		close(done)
		<-released
	}, nil
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
