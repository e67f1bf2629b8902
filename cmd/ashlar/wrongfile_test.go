package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// zeros is a stream of 64 MiB of zeros that counts how many were read.
type zeros struct{ read int }

func (z *zeros) Read(b []byte) (int, error) {
	if z.read >= 64<<20 {
		return 0, io.EOF
	}
	clear(b)
	z.read += len(b)
	return len(b), nil
}

// A file in none of the formats is refused by its first bytes, at any size, and the error lists the known formats.
func TestDefect07_WrongFilesAreNotRead(t *testing.T) {
	const known = "want a pickle of protocol 2 to 5, plain or compressed with gzip, zstd or xz; a trace is a file that " +
		"torch.cuda.memory._dump_snapshot wrote, or a script, whose name ends in .script"
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"x", []string{"info"}, known},
		{"x", []string{"verify"}, known},
		{"x", []string{"replay"}, known},
		{"x", []string{"export", "--to", "json", "-o", out}, known},
		{"x", []string{"pack"}, known},
		{"x", []string{"plan", "-o", out}, known},
		{"x.script", []string{"replay"}, "script:1:1: the line has more than 65536 bytes; a script is text with one request a line"},
		{"x.csv", []string{"pack"}, "a row of more than 1048576 bytes: want rows of id,lower,upper,size"},
		{"x", []string{"tensors"}, "want safetensors, numpy's .npy or .npz, or the index of a checkpoint (.json)"},
		{"x.safetensors", []string{"tensors"}, "the header does not begin with '{'"},
		{"x.npy", []string{"tensors"}, `want "\x93NUMPY"`},
		{"x.npz", []string{"tensors"}, "x.npz: the archive: "},
		{"x.index.json", []string{"tensors"}, "the index: want '{'"},
	} {
		path := filepath.Join(dir, c.name)
		if err := sparse(path, 1<<30); err != nil {
			t.Fatal(err)
		}
		before := testkit.Allocated()
		got := ashlar(t, nil, append(c.args, path)...)
		took := testkit.Allocated() - before
		if took > 32<<20 {
			t.Errorf("%q of a file of 1 GiB takes %d bytes of memory", c.args, took)
		}
		if got.code != exitInput || !strings.Contains(got.err, path) || !strings.Contains(got.err, c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, got.code, got.err)
		}
	}
	for _, args := range [][]string{{"info", "-"}, {"verify", "-"}, {"replay", "-"}, {"export", "--to", "json", "-"}, {"pack", "-"}} {
		var stderr strings.Builder
		in := &zeros{}
		if code := run(args, in, io.Discard, &stderr); code != exitInput || in.read > 1<<20 {
			t.Errorf("%q: exit code %d after %d bytes: %s", args, code, in.read, stderr.String())
		}
		if text := stderr.String(); !strings.Contains(text, "standard input: ") || !strings.Contains(text, known) {
			t.Errorf("%q: %s", args, text)
		}
	}
}

// A directory or an empty file is named as such, by every command that reads one file.
func TestDirectoriesAndEmptyFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	for _, command := range []string{"info", "explain", "replay", "tune", "verify", "pack", "remat"} {
		got := ashlar(t, nil, command, dir)
		if want := "ashlar: " + dir + ": is a directory\n"; got.code != exitInput || got.err != want {
			t.Errorf("%s of a directory: exit code %d, %s", command, got.code, got.err)
		}
	}
	for _, command := range []string{"info", "replay", "pack", "tensors", "estimate", "remat"} {
		got := ashlar(t, nil, command, file(t, "empty", ""))
		if got.code != exitInput || !strings.Contains(got.err, " is empty") {
			t.Errorf("%s of an empty file: exit code %d, %s", command, got.code, got.err)
		}
	}
	got := ashlar(t, nil, "remat", sample("streams"))
	if got.code != exitInput || !strings.Contains(got.err, "a log has a line of JSON for each operation") {
		t.Errorf("remat of a trace: exit code %d, %s", got.code, got.err)
	}
}

// sparse makes a file of zeros that takes no room.
func sparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}
