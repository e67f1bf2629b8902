package mapped

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What cannot be mapped is read, as far as the caller allows.
func TestAPipeIsRead(t *testing.T) {
	for limit, want := range map[int64]string{5: "hello", 4: ""} {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(path, []byte("hello"), 0) }()
		f, err := Open(path, limit, nil)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
				t.Errorf("%v", err)
			}
		} else if err != nil || string(f.Bytes()) != want || f.Mapped() || f.Release() != nil {
			t.Errorf("%v", err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
}

// A pipe that does not end is not read once its first bytes are refused.
func TestDefect07_APipeIsJudgedByItsFirstBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan int)
	go func() {
		n := 0
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			for zeros := make([]byte, 4<<10); err == nil; n += len(zeros) {
				_, err = f.Write(zeros)
			}
			_ = f.Close()
		}
		written <- n
	}()
	refused := errors.New("no such format")
	if _, err := Open(path, 64<<20, func([]byte) error { return refused }); err != refused {
		t.Errorf("%v", err)
	}
	if n := <-written; n > 1<<20 {
		t.Errorf("%d bytes were read", n)
	}
}
