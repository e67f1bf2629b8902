package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

func write(path, text string, o Options, failure error) error {
	return Write(path, o, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return errors.Join(err, failure)
	})
}

// has reports an error unless dir has only these files, with their contents.
func has(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	if len(entries) != len(want) {
		t.Errorf("the folder has %v, want %v", entries, want)
	}
	for name, text := range want {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != text {
			t.Errorf("%s has %q, %v, want %q", name, b, err, text)
		}
	}
}

// A file is there whole or not at all, with nothing beside it.
func TestAFailureLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	full := errors.New("no more data")
	for _, step := range []struct {
		text    string
		failure error
		want    map[string]string
	}{
		{"half", full, nil},
		{"first", nil, map[string]string{"x": "first"}},
		{"half", full, map[string]string{"x": "first"}},
		{"second", nil, map[string]string{"x": "second"}},
	} {
		if err := write(path, step.text, Options{}, step.failure); !errors.Is(err, step.failure) {
			t.Fatalf("%v", err)
		}
		has(t, dir, step.want)
	}
	testkit.WantPanic(t, "a function that panics", "no", func() {
		_ = Write(path, Options{}, func(io.Writer) error { panic("no") })
	})
	has(t, dir, map[string]string{"x": "second"})
	if err := write(filepath.Join(path, "y"), "", Options{}, nil); err == nil {
		t.Error("a file below a file")
	}
	if err := write(path, "third", Options{New: true}, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a new file of the name of another: %v", err)
	}
	has(t, dir, map[string]string{"x": "second"})
}

// The bytes are on the disk before the file has its name, and the name is on the disk when Write returns. A disk that
// fails is an error, and the old file stays.
func TestFilesAreSynced(t *testing.T) {
	defer func() { sync = (*os.File).Sync }()
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	testkit.Must(t, write(path, "old", Options{}, nil))
	var synced []string
	sync = func(f *os.File) error {
		b, err := os.ReadFile(path)
		testkit.Must(t, err)
		info, err := f.Stat()
		testkit.Must(t, err)
		what := fmt.Sprintf("the folder after %s", b)
		if !info.IsDir() {
			what = fmt.Sprintf("%d bytes after %s", info.Size(), b)
		}
		synced = append(synced, what)
		return nil
	}
	testkit.Must(t, write(path, "recent", Options{}, nil))
	if want := []string{"6 bytes after old", "the folder after recent"}; !slices.Equal(synced, want) {
		t.Errorf("synced are %q, want %q", synced, want)
	}
	broken := errors.New("the disk failed")
	sync = func(*os.File) error { return broken }
	if err := write(path, "third", Options{}, nil); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	has(t, dir, map[string]string{"x": "recent"})
}

// Files that killed writers left are no obstacle, and stay. Neither is a long name.
func TestFilesOfOtherWritersStay(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{"x": "new", strings.Repeat("y", 250): "long"}
	for i := range 1500 {
		name := fmt.Sprintf("x.%d.part", i)
		want[name] = "another's"
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("another's"), 0o600))
	}
	testkit.Must(t, write(filepath.Join(dir, "x"), "new", Options{}, nil))
	testkit.Must(t, write(filepath.Join(dir, strings.Repeat("y", 250)), "long", Options{}, nil))
	has(t, dir, want)
}

// Created learns of the temporary file, and its result is called in the end, also after a failure.
func TestCreated(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no more data")} {
		path := filepath.Join(t.TempDir(), "x")
		var calls []string
		o := Options{Created: func(f *os.File) func() {
			calls = append(calls, filepath.Base(f.Name()))
			return func() { calls = append(calls, "release") }
		}}
		if err := write(path, "text", o, failure); !errors.Is(err, failure) {
			t.Error(err)
		}
		if want := []string{"x.0.part", "release"}; !slices.Equal(calls, want) {
			t.Errorf("%q, want %q", calls, want)
		}
	}
}

// Check finds what Write would fail for, and leaves nothing.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := Check(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
	if err := Check(filepath.Join(dir, "missing", "file")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a missing folder: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("left are %v, %v", files, err)
	}
}
