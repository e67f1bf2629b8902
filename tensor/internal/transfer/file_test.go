package transfer

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file is there whole or not at all, with nothing beside it.
func TestWriteFileThatFailsLeavesTheOldOne(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	write := func(text string, failure error) error {
		return WriteFile(path, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return errors.Join(err, failure)
		})
	}
	full := errors.New("no more data")
	for _, step := range []struct {
		text    string
		failure error
		want    string
	}{{"half", full, ""}, {"first", nil, "first"}, {"half", full, "first"}, {"second", nil, "second"}} {
		if err := write(step.text, step.failure); !errors.Is(err, step.failure) {
			t.Fatalf("%v", err)
		}
		got, err := os.ReadFile(path)
		if string(got) != step.want || (step.want == "") != errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file has %q, %v, want %q", got, err, step.want)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 1 {
			t.Errorf("%v, %v", list, err)
		}
	}
	if err := WriteFile(filepath.Join(path, "y"), func(io.Writer) error { return nil }); err == nil {
		t.Error("a file below a file")
	}
}
