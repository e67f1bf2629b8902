//go:build unix

package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A command that reads a pipe says so while no program writes to the pipe, and goes on when one does.
func TestAPipeWithoutAWriterIsNamed(t *testing.T) {
	for command, input := range map[string]string{
		"info": sample("streams"), "tensors": filepath.Join(arrays, "int16.npy"), "estimate": "",
	} {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		r, stderr := io.Pipe()
		ended := make(chan int)
		go func() {
			code := run([]string{command, path}, nil, io.Discard, stderr)
			_ = stderr.Close()
			ended <- code
		}()
		errs := bufio.NewReader(r)
		line, err := errs.ReadString('\n')
		if err != nil || !strings.Contains(line, "pipe, and no program writes to it yet") {
			t.Errorf("%s: %q, %v", command, line, err)
		}
		var content []byte
		if input != "" {
			if content, err = os.ReadFile(input); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, content, 0); err != nil && !strings.Contains(err.Error(), "broken pipe") {
			t.Errorf("%s: %v", command, err)
		}
		rest, _ := io.ReadAll(errs)
		if code := <-ended; command == "info" && code != exitOK {
			t.Errorf("%s: exit code %d, %s", command, code, rest)
		}
	}
}

// Input without an end is refused by its first bytes.
func TestEndlessInputIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sparse.pickle")
	if f, err := os.Create(file); err != nil || f.Truncate(60<<30) != nil || f.Close() != nil {
		t.Fatal(err)
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	for _, path := range []string{"/dev/zero", "-", file} {
		for _, command := range []string{"info", "explain", "replay", "tune", "verify", "pack", "export --to json", "tensors", "estimate"} {
			var stderr strings.Builder
			at := countedReader{r: zero}
			code := run(append(strings.Fields(command), path), &at, io.Discard, &stderr)
			if code != exitInput || !strings.Contains(stderr.String(), "begin") && path != "-" {
				t.Errorf("%s %s: exit code %d, %q", command, path, code, stderr.String())
			}
			if at.n > 1<<20 {
				t.Errorf("%s %s reads %d bytes", command, path, at.n)
			}
		}
	}
}

type countedReader struct {
	r io.Reader
	n int
}

func (c *countedReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += n
	return n, err
}
