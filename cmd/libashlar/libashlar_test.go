//go:build libashlar

package main

import (
	"errors"
	"flag"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

var forks = flag.Int("forks", 200, "children that TestLibrary makes by fork")

// TestLibrary builds the library with simulated GPUs. It runs each test of testdata/host.c against the library, in a
// separate process.
func TestLibrary(t *testing.T) {
	t.Setenv("MALLOC_PERTURB_", "1") // glibc overwrites what is freed
	dir := t.TempDir()
	library, host := filepath.Join(dir, "libashlar.so"), filepath.Join(dir, "host")
	run(t, "go", "build", "-tags", "libashlar,fakecuda", "-buildmode=c-shared", "-o", library, ".")
	run(t, "gcc", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", host, "testdata/host.c", "-ldl")
	for _, name := range []string{
		"blocks", "pins", "limit", "reports", "peers", "captures", "pools", "pauses", "shares", "panics",
		"closing", "settings", "threads",
	} {
		t.Run(name, func(t *testing.T) { run(t, host, library, name) })
	}
	t.Run("forks", func(t *testing.T) { run(t, host, library, "forks", strconv.Itoa(*forks)) })
	t.Run("stuck", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), host, library, "stuck").CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT ||
			!strings.Contains(string(out), "injected with a lock") {
			t.Errorf("%v, want SIGABRT and the text of the panic\n%s", err, out)
		}
	})
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

// A call that waits for a mutex is stuck after a panic. One that waits for other calls to finish is not, nor are
// goroutines of the library's own.
func TestIsStuck(t *testing.T) {
	const call = "\nmain.ashlarGoPause(...)\n"
	for stacks, want := range map[string]bool{
		"goroutine 1 [sync.Mutex.Lock]:" + call:                                           true,
		"goroutine 1 [running]:\nmain.main()\n\ngoroutine 2 [sync.RWMutex.RLock]:" + call: true,
		"goroutine 1 [sync.WaitGroup.Wait]:" + call:                                       false,
		"goroutine 1 [sync.Cond.Wait]:" + call:                                            false,
		"goroutine 1 [sync.Mutex.Lock]:\nplanned.(*Learner).pack(...)\n":                  false,
	} {
		if got := isStuck(stacks); got != want {
			t.Errorf("%q: %v, want %v", stacks, got, want)
		}
	}
}
