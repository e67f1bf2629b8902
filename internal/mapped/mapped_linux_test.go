package mapped

import (
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
		f, err := Open(path, limit)
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
