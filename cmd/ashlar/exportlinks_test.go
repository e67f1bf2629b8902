//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// export -o leaves other files alone, keeps the rights of the file it replaces, and writes to where a link leads.
func TestExportToExistingFiles(t *testing.T) {
	dir := t.TempDir()
	target, link, partial := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "target.0.partial")
	for path, rights := range map[string]os.FileMode{target: 0o600, partial: 0o644} {
		if err := os.WriteFile(path, []byte("before"), rights); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	ok(t, "export", "--to", "json", "-o", link, sample("streams"))
	if b, err := os.ReadFile(target); err != nil || string(b) == "before" {
		t.Errorf("what the link leads to: %.20q, %v", b, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v, %v", info.Mode(), err)
	}
	if b, err := os.ReadFile(partial); err != nil || string(b) != "before" {
		t.Errorf("another's file has %.20q, %v", b, err)
	}
	ok(t, "export", "--to", "pickle", "-o", target, sample("streams"))
	ok(t, "export", "--to", "pickle", "-o", target, target) // onto itself
	if err := writeFile(target, func(w io.Writer) error {
		_, _ = w.Write(make([]byte, 5<<20))
		return io.ErrNoProgress
	}); err != io.ErrNoProgress {
		t.Errorf("%v", err)
	}
	ok(t, "verify", target)
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) != 3 {
		t.Errorf("%q are left, %v", left, err)
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
