//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/nvml"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/dl"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// newMachine makes a machine for a test. When the test ends nothing may be left on it, nor a context on any thread, and
// nothing may have been done that CUDA leaves undefined.
func newMachine(t testing.TB, opts fakecuda.Options) *fakecuda.Machine {
	t.Helper()
	m := fakecuda.New(opts)
	t.Cleanup(func() {
		m.Close()
		for _, what := range m.Leaks() {
			t.Errorf("left behind: %s", what)
		}
		if n := m.ThreadContexts(); n != 0 {
			t.Errorf("%d contexts are left on threads", n)
		}
		for _, what := range m.Misuses() {
			t.Errorf("undefined in CUDA: %s", what)
		}
	})
	return m
}

// driverOf is the driver on a machine with all device nodes and no NVML.
func driverOf(m *fakecuda.Machine) *cudaDriver {
	lib := cu.New(m.Lookup)
	return &cudaDriver{
		load:   func() (*cu.Lib, dl.Tries, error) { return lib, dl.Tries{{Name: "fake"}}, nil },
		nvml:   func() (*nvml.Lib, dl.Tries, error) { return nil, nil, errors.New("no NVML") },
		exists: func(string) bool { return true },
	}
}

// openOn opens a device that is closed when the test ends.
func openOn(t testing.TB, m *fakecuda.Machine, args string) *device {
	t.Helper()
	d, err := driverOf(m).Open(args)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, d.Close()) })
	return d.(*device)
}

func newTestStream(t testing.TB, d *device) *stream {
	t.Helper()
	s := drivertest.NewStream(t, d)
	return s.(*stream)
}

func alloc(t testing.TB, d *device, size int64) driver.Pointer {
	t.Helper()
	p := drivertest.Alloc(t, d, size)
	return p
}

func markOf(t testing.TB, s *stream) driver.Mark {
	t.Helper()
	m, err := s.Mark()
	testkit.Must(t, err)
	return m
}

func reached(t testing.TB, s *stream, m driver.Mark) bool {
	t.Helper()
	ok, err := s.Reached(m)
	testkit.Must(t, err)
	return ok
}

func syncOf(t testing.TB, s *stream) {
	t.Helper()
	testkit.Must(t, s.Sync(context.Background()))
}

func background() context.Context { return context.Background() }

// wantErr fails the test unless err is a *driver.Error that matches code and holds the texts.
func wantErr(t testing.TB, what string, err, code error, texts ...string) {
	t.Helper()
	if e := (*driver.Error)(nil); !errors.Is(err, code) || !errors.As(err, &e) {
		t.Errorf("%s: got %v, want a *driver.Error that matches %q", what, err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q does not say %q", what, err, text)
		}
	}
}
