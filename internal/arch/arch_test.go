package arch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestModule applies every rule to this module.
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

// pathsOfThisMachine returns directories that exist on this machine and few others: the module's, its parent, and the
// user's home.
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
