package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func mark(t *testing.T, s driver.Stream) driver.Mark {
	t.Helper()
	m, err := s.Mark()
	testkit.Must(t, err)
	return m
}

// during makes a call in the background and returns when the call waits. The function that it returns checks whether
// the call has returned, and returns its result.
func during(t *testing.T, what string, call func() error) (returned func(want bool)) {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- call() }()
	synctest.Wait()
	return func(want bool) {
		t.Helper()
		synctest.Wait()
		if got := len(result) > 0; got != want {
			t.Fatalf("%s has returned: %v, want %v", what, got, want)
		}
		if want {
			testkit.Must(t, <-result)
		}
	}
}

// noWork fails the test unless all calls that queue work on s are refused.
func noWork(t *testing.T, d driver.Device, s driver.Stream, p driver.Pointer) {
	t.Helper()
	for what, call := range map[string]func() error{
		"Fill":        func() error { return s.Fill(p, 1, 1) },
		"Copy":        func() error { return s.Copy(p, p+1, 1) },
		"CopyIn":      func() error { return s.CopyIn(p, []byte{1}) },
		"CopyIn long": func() error { return s.CopyIn(p, make([]byte, stagedBytes+1)) },
		"CopyOut":     func() error { return s.CopyOut(make([]byte, 1), p) },
		"Launch":      func() error { return d.Kernels().Launch(s, driver.Kernel{Name: "late"}) },
		"Stamp":       func() error { _, err := d.Timing().Stamp(s); return err },
		"Begin":       func() error { return d.Graphs().Begin(s) },
	} {
		if err := call(); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s while the stream is being closed: %v, want ErrClosed", what, err)
		}
	}
}

// orders fails the test unless other streams can still be ordered after s, whose work is held. It returns a mark of s.
func orders(t *testing.T, d driver.Device, s driver.Stream) driver.Mark {
	t.Helper()
	m := mark(t, s)
	if reached(t, s, m) {
		t.Error("a mark behind held work is reached")
	}
	if captures, err := d.Graphs().Capturing(s); captures || err != nil {
		t.Errorf("Capturing: %v, %v", captures, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Sync(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync with an ended context: %v", err)
	}
	return m
}

// TestOrderWhileAStreamCloses: its work is held, and so is work it was made to wait for.
func TestOrderWhileAStreamCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		streams := newStreams(t, d, 4)
		s, before, after, captures := streams[0], streams[1], streams[2], streams[3]
		p := drivertest.Alloc(t, d, 1<<20)
		releaseS, releaseBefore := hold(t, d, s), hold(t, d, before)
		testkit.Must(t, s.Fill(p, 1, 2))
		testkit.Must(t, before.Fill(p+1, 2, 1))

		closed, again := during(t, "Close", s.Close), during(t, "a second Close", s.Close)
		noWork(t, d, s, p)
		first := orders(t, d, s)
		testkit.Must(t, s.WaitFor(before, mark(t, before)))
		last := orders(t, d, s)
		testkit.Must(t, after.WaitFor(s, last))
		testkit.Must(t, after.Fill(p, 3, 2))
		done := mark(t, after)

		testkit.Must(t, d.Graphs().Begin(captures))
		if err := s.WaitFor(captures, mark(t, captures)); !errors.Is(err, driver.ErrCapturing) {
			t.Errorf("WaitFor that would draw a closing stream into a capture: %v, want ErrCapturing", err)
		}
		g, err := d.Graphs().End(captures)
		testkit.Must(t, err)
		testkit.Must(t, g.Close())

		releaseS()
		synctest.Wait()
		if !reached(t, s, first) || reached(t, s, last) || reached(t, after, done) {
			t.Error("with its own work done: the mark before WaitFor is not reached, or what comes after it is")
		}
		closed(false)
		if n := newStreams(t, d, 1)[0]; n.ID() == s.ID() {
			t.Error("the number of a stream that still closes was given again")
		}
		releaseBefore()
		closed(true)
		again(true)
		if !reached(t, s, last) {
			t.Error("a mark of a stream that was closed is not reached")
		}
		_, err = s.Mark()
		if later := s.WaitFor(after, done); !errors.Is(err, driver.ErrClosed) || !errors.Is(later, driver.ErrClosed) {
			t.Errorf("after Close: Mark %v, WaitFor %v", err, later)
		}
		got := make([]byte, 2)
		testkit.Must(t, after.CopyOut(got, p))
		if got[0] != 3 || got[1] != 3 {
			t.Errorf("got %v, want what comes last", got)
		}
	})
}

// TestUnregisterWhileTheDeviceCloses: a caller that gets ErrClosed may unmap the memory.
func TestUnregisterWhileTheDeviceCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := Open(Options{Total: 64 << 20})
		testkit.Must(t, err)
		s := newStreams(t, d, 1)[0]
		at, err := mapMemory(pageSize)
		testkit.Must(t, err)
		b := view(at, pageSize)
		p := drivertest.Alloc(t, d, pageSize)
		testkit.Must(t, d.Pinned().Register(b))
		testkit.Must(t, s.Fill(p, 7, pageSize))
		release := hold(t, d, s)
		testkit.Must(t, d.Pinned().CopyOutAsync(s, b, p))
		closed := during(t, "Close", d.Close)
		given := during(t, "Unregister", func() error {
			if err := d.Pinned().Unregister(b); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("Unregister on a device that is being closed: %v", err)
			}
			if b[0] != 7 {
				t.Error("Unregister came back before the copy")
			}
			return nil
		})
		given(false)
		release()
		given(true)
		closed(true)
		testkit.Must(t, unmapMemory(at, pageSize))
	})
}

// TestOrderWhileTheDeviceCloses: all streams are shut at once, also those that are not waited for yet.
func TestOrderWhileTheDeviceCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := Open(Options{Total: 64 << 20})
		testkit.Must(t, err)
		streams := append(newStreams(t, d, 2), d.DefaultStream())
		p := drivertest.Alloc(t, d, 1<<20)
		releases := make([]func(), len(streams))
		for i, s := range streams {
			releases[i] = hold(t, d, s)
		}
		closed := during(t, "Close", d.Close)
		marks := make([]driver.Mark, len(streams))
		for i, s := range streams {
			noWork(t, d, s, p)
			marks[i] = orders(t, d, s)
		}
		testkit.Must(t, streams[0].WaitFor(streams[1], marks[1]))
		for i, release := range releases {
			closed(false)
			release()
			synctest.Wait()
			if !reached(t, streams[i], marks[i]) {
				t.Errorf("stream %d has done its work, and its mark is not reached", streams[i].ID())
			}
		}
		closed(true)
		for _, s := range streams {
			if _, err := s.Mark(); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("Mark after Close: %v", err)
			}
		}
	})
}
