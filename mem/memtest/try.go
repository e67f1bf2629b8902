package memtest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// A scratch is a testing.TB whose failure does not fail the real test, for histories that run many times while they are
// shrunk. Other methods are those of the real test.
type scratch struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	text     strings.Builder
	cleanups []func()
}

// try runs f as a test, with its cleanups, and returns its failure reports or its panic as text. Empty means that it
// passed.
func try(parent testing.TB, f func(testing.TB)) string {
	s := &scratch{TB: parent}
	s.guard(func() { f(s) })
	s.clean()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failed {
		return ""
	}
	return s.text.String()
}

// guard runs f in a goroutine of its own, which FailNow may end.
func (s *scratch) guard(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				s.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

// clean runs the registered cleanups, the last one first.
func (s *scratch) clean() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		last := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		s.guard(last)
	}
}

func (s *scratch) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *scratch) report(text string, fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = s.failed || fails
	if text != "" {
		s.text.WriteString(strings.TrimSuffix(text, "\n") + "\n")
	}
}

func (s *scratch) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *scratch) FailNow() {
	s.report("", true)
	runtime.Goexit()
}

func (s *scratch) Helper()                        {}
func (s *scratch) Fail()                          { s.report("", true) }
func (s *scratch) Log(args ...any)                { s.report(fmt.Sprintln(args...), false) }
func (s *scratch) Logf(format string, a ...any)   { s.report(fmt.Sprintf(format, a...), false) }
func (s *scratch) Error(args ...any)              { s.report(fmt.Sprintln(args...), true) }
func (s *scratch) Errorf(format string, a ...any) { s.report(fmt.Sprintf(format, a...), true) }

func (s *scratch) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}

func (s *scratch) Fatalf(format string, a ...any) {
	s.Errorf(format, a...)
	runtime.Goexit()
}
