//go:build linux && (amd64 || arm64) && !nocuda

package dl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenTakesTheFirstThatOpens(t *testing.T) {
	l, tries, err := Open("libnone.so.9", "libc.so.6", "libm.so.6")
	if err != nil {
		t.Fatal(err)
	}
	if len(tries) != 2 || tries[0].Err == nil || tries[1].Err != nil || tries.Opened() != "libc.so.6" {
		t.Errorf("tries %v, want libnone.so.9 to fail, libc.so.6 to open and no third", tries)
	}
	if a, err := l.Lookup("getpid"); a == 0 || err != nil {
		t.Errorf("getpid of libc: %#x, %v", a, err)
	}
	if a, err := l.Lookup("there_is_no_such_symbol"); a != 0 || err == nil || !strings.Contains(err.Error(), "there_is_no_such_symbol") {
		t.Errorf("a symbol that is not there: %#x, %v; want an error that names it", a, err)
	}
}

// Each name is said once, and what is the same of several too.
func TestOpenOfNothingTellsEveryTry(t *testing.T) {
	l, tries, err := Open("libnone.so.9", "/none/libnone.so")
	if l != nil || err == nil || len(tries) != 2 || tries.Opened() != "" {
		t.Fatalf("got %v, %v, %v", l, tries, err)
	}
	if want := "none of libnone.so.9, /none/libnone.so was found"; err.Error() != want || tries.String() != want {
		t.Errorf("%q and %v, want %q", err, tries, want)
	}
	no := filepath.Join(t.TempDir(), "no.so")
	if err := os.WriteFile(no, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = Open("libnone.so.9", no, "/none/libnone.so")
	want := "libnone.so.9, /none/libnone.so: not found; " + no + ": file too short"
	if err == nil || err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if _, _, err = Open("libnone.so.9"); err == nil || err.Error() != "libnone.so.9: not found" {
		t.Errorf("%q", err)
	}
	if !errors.Is(failure{{"a", ErrNone}, {"b", ErrNone}}, ErrNone) || (failure{{"a", ErrNone}, {"b", ErrNone}}).Error() != "a, b: "+ErrNone.Error() {
		t.Error("without dlopen the error is not ErrNone")
	}
}
