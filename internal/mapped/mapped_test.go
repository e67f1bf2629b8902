package mapped

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

func file(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAFileIsItsBytesUntilTheLastOwnerIsGone(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 3000)
	f := open(t, file(t, content))
	if !bytes.Equal(f.Bytes(), content) {
		t.Fatal("other bytes")
	}
	f.Retain()
	if err := f.Release(); err != nil || !bytes.Equal(f.Bytes(), content) {
		t.Fatalf("gone with the first of two owners: %v", err)
	}
	if err := f.Release(); err != nil || f.Bytes() != nil {
		t.Fatalf("still there without owners: %v", err)
	}
	for _, call := range []func(){func() { f.Retain() }, func() { _ = f.Release() }} {
		testkit.WantPanic(t, "use of a file that is gone", "", call)
	}
}

// The mapping is private.
func TestWritesDoNotReachTheFile(t *testing.T) {
	path := file(t, []byte("before"))
	f := open(t, path)
	defer f.Release()
	copy(f.Bytes(), "after!")
	if got, err := os.ReadFile(path); err != nil || string(got) != "before" {
		t.Errorf("the file has %q, %v", got, err)
	}
	other := open(t, path)
	defer other.Release()
	if string(other.Bytes()) != "before" || string(f.Bytes()) != "after!" {
		t.Errorf("%q and %q", other.Bytes(), f.Bytes())
	}
}

func TestOpenOfWhatIsNoFile(t *testing.T) {
	if f := open(t, file(t, nil)); len(f.Bytes()) != 0 || f.Release() != nil {
		t.Error("an empty file is no bytes")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), 1, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	if _, err := Open(t.TempDir(), 1, nil); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("of a directory: %v", err)
	}
}

// Every part, aligned or not, can be read, and a part that was truncated is an error.
func TestATruncatedFileIsAnError(t *testing.T) {
	content := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 2*pageSize)
	path := file(t, content)
	f := open(t, path)
	defer f.Release()
	for _, r := range [][2]int{{0, 0}, {0, 1}, {0, len(content)}, {pageSize - 1, pageSize + 1}, {7, 8}, {len(content) - 1, len(content)}} {
		b := make([]byte, r[1]-r[0])
		if n, err := f.ReadAt(b, int64(r[0])); n != len(b) || err != nil || !bytes.Equal(b, content[r[0]:r[1]]) {
			t.Errorf("%v: %v", r, err)
		}
	}
	if !f.Mapped() || runtime.GOOS == "windows" { // which does not let a mapped file be truncated
		return
	}
	if err := os.Truncate(path, pageSize); err != nil {
		t.Fatal(err)
	}
	for at, cut := range map[int]bool{0: false, pageSize - 1: false, 8 * pageSize: true} {
		var b [1]byte
		_, read := f.ReadAt(b[:], int64(at))
		seen := Try(func() { b[0] = f.Bytes()[at] })
		for _, err := range []error{read, seen} {
			if cut != (err != nil) || cut && !strings.Contains(err.Error(), "truncated") {
				t.Errorf("byte %d: %v", at, err)
			}
		}
	}
	testkit.WantPanic(t, "a panic that is no fault", "mine", func() { _ = Try(func() { panic("mine") }) })
}

// Prepare changes nothing, of memory that was written and of memory that was not.
func TestPrepareChangesNothing(t *testing.T) {
	content := bytes.Repeat([]byte{1, 2, 3}, 3*pageSize)
	f := open(t, file(t, content))
	defer f.Release()
	want := bytes.Clone(content)
	f.Bytes()[5], want[5] = 9, 9
	Prepare(nil)
	Prepare(f.Bytes()[5:])
	Prepare(f.Bytes()[2*pageSize+1 : 2*pageSize+2])
	if !bytes.Equal(f.Bytes(), want) {
		t.Error("other bytes")
	}
}

// What judge refuses is neither read nor mapped: of a pipe that has no end, too.
func TestDefect07_AFileIsJudgedByItsFirstBytes(t *testing.T) {
	refused := errors.New("no such format")
	for content, want := range map[string]string{"": "", "short": "short", "0123456789abcdefghi": "0123456789abcdef"} {
		path, saw := file(t, []byte(content)), ""
		if f, err := Open(path, 1, func(start []byte) error { saw = string(start); return refused }); err != refused || f != nil {
			t.Errorf("%q: %v", content, err)
		}
		if saw != want {
			t.Errorf("%q: judged by %q", content, saw)
		}
		f, err := Open(path, 1, func([]byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if string(f.Bytes()) != content {
			t.Errorf("%q became %q", content, f.Bytes())
		}
		if err := f.Release(); err != nil {
			t.Error(err)
		}
	}
}
