//go:build libashlar

package main

import (
	"flag"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

var forks = flag.Int("forks", 200, "children that TestLibrary makes by fork")

// TestLibrary builds the library with simulated GPUs. It runs each test of testdata/host.c against the library, in a
// separate process.
func TestLibrary(t *testing.T) {
	dir := t.TempDir()
	library, host := filepath.Join(dir, "libashlar.so"), filepath.Join(dir, "host")
	run(t, "go", "build", "-tags", "libashlar,fakecuda", "-buildmode=c-shared", "-o", library, ".")
	run(t, "gcc", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", host, "testdata/host.c", "-ldl")
	for _, name := range []string{
		"blocks", "pins", "limit", "reports", "peers", "captures", "pools", "pauses", "panics", "closing",
		"settings",
	} {
		t.Run(name, func(t *testing.T) { run(t, host, library, name) })
	}
	t.Run("forks", func(t *testing.T) { run(t, host, library, "forks", strconv.Itoa(*forks)) })
	t.Run("exit", func(t *testing.T) {
		for range 20 {
			run(t, host, library, "exit")
		}
	})
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
