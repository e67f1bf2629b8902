package host

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestStrayWorkIsRefusedAtOnce(t *testing.T) {
	d := open(t)
	s := d.DefaultStream()
	p := drivertest.Alloc(t, d, pageSize)
	for what, call := range map[string]func() error{
		"beyond the end":   func() error { return s.Fill(p+1, 0, pageSize) },
		"before the start": func() error { return s.Fill(p-1, 0, 2) },
		"nowhere":          func() error { return s.CopyIn(64, []byte{1}) },
		"around the end":   func() error { return s.CopyOut(make([]byte, 2), ^driver.Pointer(0)) },
		"from nowhere":     func() error { return s.Copy(p, 1<<40, 8) },
		"to nowhere":       func() error { return s.Copy(1<<40, p, 8) },
	} {
		if err := call(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	testkit.Must(t, s.Fill(p, 0, pageSize))
	testkit.Must(t, s.Fill(0, 0, 0)) // no bytes are nowhere
	testkit.Must(t, s.Sync(context.Background()))
}

// TestMisusePanics: calls that only a bug of the caller can make.
func TestMisusePanics(t *testing.T) {
	d := open(t)
	streams := newStreams(t, d, 2)
	a, b := streams[0], streams[1]
	p := drivertest.Alloc(t, d, 4096)
	for what, call := range map[string]func(){
		"a mark of another stream":          func() { _, _ = a.Reached(driver.Mark{Stream: b.ID()}) },
		"a mark of no stream":               func() { _ = a.WaitFor(b, driver.Mark{Stream: 99}) },
		"a mark that was not taken yet":     func() { _, _ = a.Reached(driver.Mark{Stream: a.ID(), Tick: 1 << 40}) },
		"a typed nil stream":                func() { _ = a.WaitFor((*stream)(nil), driver.Mark{}) },
		"a size that makes no sense":        func() { _ = a.Fill(p, 0, -1) },
		"a launch on another kind of thing": func() { _ = d.Kernels().Launch(nil, driver.Kernel{}) },
	} {
		testkit.WantPanic(t, what, "driver/host: ", call)
	}
	testkit.Must(t, a.Copy(p, p+8, 8)) // side by side
	testkit.Must(t, a.Sync(context.Background()))
}

// TestNumbersAreUsedAgainTicksAreNot: a mark of a closed stream is reached on the stream that has its ID now.
func TestNumbersAreUsedAgainTicksAreNot(t *testing.T) {
	d := open(t)
	p := drivertest.Alloc(t, d, 8)
	var marks []driver.Mark
	for range 5 {
		s := newStreams(t, d, 1)[0]
		if s.ID() != 1 {
			t.Errorf("stream %d, want 1", s.ID())
		}
		for _, m := range marks {
			if !reached(t, s, m) {
				t.Errorf("%+v of an earlier stream is not reached", m)
			}
		}
		testkit.Must(t, s.Fill(p, 1, 8))
		m, err := s.Mark()
		testkit.Must(t, err)
		if len(marks) > 0 && m.Tick <= marks[len(marks)-1].Tick {
			t.Errorf("tick %d after %d", m.Tick, marks[len(marks)-1].Tick)
		}
		marks = append(marks, m)
		testkit.Must(t, s.Close())
	}
}

// The error of a free names the call that failed, and the call that gives blocks which it frees.
func TestErrorOfFree(t *testing.T) {
	d := open(t)
	p := drivertest.Alloc(t, d, pageSize)
	err := d.Free(p + 1)
	if err == nil {
		t.Fatal("an address inside a block was freed")
	}
	testkit.Contains(t, err.Error(), "Free: ")
	testkit.Contains(t, err.Error(), "is not the start of a block from Alloc")
}
