//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/snapshot"
)

// A writer is a child process that is "ashlar" with these arguments, whose export stops half-way until its standard
// input ends. A deaf one was started to ignore interrupts.
const (
	writerRole     = "ashlar-writer"
	deafWriterRole = "ashlar-deaf-writer"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && (os.Args[1] == writerRole || os.Args[1] == deafWriterRole) {
		if os.Args[1] == deafWriterRole {
			signal.Ignore(os.Interrupt)
		}
		exporters["json"] = func(_ *snapshot.Snapshot, w io.Writer) error {
			_, err := w.Write(make([]byte, 3<<20))
			fmt.Println("half")
			_, wait := io.Copy(io.Discard, os.Stdin)
			return errors.Join(err, wait)
		}
		os.Exit(run(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	testkit.Main(m)
}

// startWriter starts a child and returns once it has written half of its file.
func startWriter(t *testing.T, args ...string) (child *exec.Cmd, stdin io.Closer) {
	t.Helper()
	child = exec.CommandContext(t.Context(), os.Args[0], args...)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "half\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return child, in
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A signal that ends the program leaves no unfinished file, and keeps the earlier one. The exit code is the shell's
// code for the signal.
func TestDefect01_SignalsLeaveNoPartialFile(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		// A child inherits signals that are ignored, as SIGHUP is under nohup, but not those that are caught.
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, sig)
		defer signal.Stop(caught)
		dir := t.TempDir()
		there, fresh := filepath.Join(dir, "there"), filepath.Join(dir, "fresh")
		if err := os.WriteFile(there, []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{there, fresh} {
			child, _ := startWriter(t, writerRole, "export", "--to", "json", "--force", "-o", path, sample("streams"))
			if all := names(t, dir); !slices.Contains(all, filepath.Base(path)+".0.part") {
				t.Errorf("while it writes there are %q", all)
			}
			if err := child.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			var failed *exec.ExitError
			if err := child.Wait(); !errors.As(err, &failed) || failed.ExitCode() != code {
				t.Errorf("%v: %v, want exit code %d", sig, err, code)
			}
			if all := names(t, dir); !slices.Equal(all, []string{"there"}) {
				t.Errorf("%v: %q are left", sig, all)
			}
		}
		if b, err := os.ReadFile(there); err != nil || string(b) != "before" {
			t.Errorf("%v: the file that was there has %.20q, %v", sig, b, err)
		}
	}
}

// A program that was started in the background, or with nohup, keeps ignoring the signals that were ignored at its
// start.
func TestDefect01_IgnoredSignalsStayIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	child, stdin := startWriter(t, deafWriterRole, "export", "--to", "json", "-o", path, sample("streams"))
	if err := errors.Join(child.Process.Signal(os.Interrupt), stdin.Close(), child.Wait()); err != nil {
		t.Errorf("%v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 3<<20 {
		t.Errorf("%v", err)
	}
}

// A replaced file keeps its rights, a link leads where it led, and other files are left alone.
func TestDefect01_ReplacedFilesKeepRightsAndLinks(t *testing.T) {
	dir := t.TempDir()
	target, link, partial := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "target.0.part")
	for path, rights := range map[string]os.FileMode{target: 0o600, partial: 0o644} {
		if err := os.WriteFile(path, []byte("before"), rights); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	ok(t, "export", "--to", "pickle", "--force", "-o", link, sample("streams"))
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v, %v", info.Mode(), err)
	}
	if b, err := os.ReadFile(partial); err != nil || string(b) != "before" {
		t.Errorf("another's file has %.20q, %v", b, err)
	}
	ok(t, "verify", target)
	if all := names(t, dir); len(all) != 3 {
		t.Errorf("%q are left", all)
	}
}

// A link to nothing is made something.
func TestExportThroughADanglingLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("to", dir+"/from"); err != nil {
		t.Fatal(err)
	}
	ok(t, "export", "--to", "json", "-o", dir+"/from", sample("streams"))
	if info, err := os.Lstat(dir + "/to"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v", err)
	}
}

// What standard output is redirected to is written as such, though it exists.
func TestDefect01_StandardOutputMayBeNamed(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var stderr strings.Builder
	if code := run([]string{"export", "--to", "json", "-o", f.Name(), sample("streams")}, nil, f, &stderr); code != exitOK {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	if b, err := os.ReadFile(f.Name()); err != nil || !strings.HasPrefix(string(b), `{"device_traces":[`) {
		t.Errorf("%.20q, %v", b, err)
	}
}
