package arch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestModule holds this module against every rule.
func TestModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Check(m, pathsOfThisMachine(root)) {
		t.Error(p)
	}
	for _, p := range m.StaleExceptions() {
		t.Error(p)
	}
	if len(m.Files) < 20 {
		t.Errorf("only %d Go files found below %s: is that the module?", len(m.Files), root)
	}
}

// pathsOfThisMachine returns the directories whose names would give away where a file was written: the module's, the
// one that holds it and the user's, but none that many machines have.
func pathsOfThisMachine(root string) []string {
	ordinary := []string{
		"/", "/etc", "/home", "/mnt", "/opt", "/srv", "/usr", "/usr/src", "/var", filepath.Clean(os.TempDir()),
	}
	candidates := []string{root, filepath.Dir(root)}
	if home, err := os.UserHomeDir(); err == nil {
		candidates = append(candidates, filepath.Clean(home))
	}
	var paths []string
	for _, c := range candidates {
		if !slices.Contains(ordinary, c) && c != filepath.Dir(c) {
			paths = append(paths, filepath.ToSlash(c))
		}
	}
	return paths
}
