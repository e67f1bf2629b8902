package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// closingFills is how many fills of closingSize bytes a stream has left when it is closed: work for some milliseconds,
// where work is not done at once.
const (
	closingFills = 40
	closingSize  = 2 << 20
)

// callsThatReportClosing are the calls whose ErrClosed says that the work of s is done. Other is another stream.
func callsThatReportClosing(d driver.Device, s, other driver.Stream) map[string]func() error {
	calls := map[string]func() error{
		"Mark":    func() error { _, err := s.Mark(); return err },
		"WaitFor": func() error { return s.WaitFor(other, driver.Mark{Stream: other.ID()}) },
		"Sync":    func() error { return s.Sync(context.Background()) },
	}
	if graphs := d.Graphs(); graphs != nil {
		calls["Capturing"] = func() error { _, err := graphs.Capturing(s); return err }
		calls["Ordered"] = func() error {
			_, err := graphs.Ordered(other, driver.Mark{Stream: other.ID()}, s)
			return err
		}
	}
	return calls
}

// keepAsking makes a call until it fails with ErrClosed.
func keepAsking(call func() error) error {
	for {
		err := call()
		if errors.Is(err, driver.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		runtime.Gosched()
	}
}

// busyStream returns a new stream with work that fills the closingSize bytes at p, and the mark behind it. It comes
// after the work of the default stream.
func busyStream(t testing.TB, d driver.Device, p driver.Pointer) (driver.Stream, driver.Mark) {
	t.Helper()
	s := NewStream(t, d)
	testkit.Must(t, s.WaitFor(d.DefaultStream(), mustMark(t, d.DefaultStream())))
	for i := range byte(closingFills) {
		testkit.Must(t, s.Fill(p, 100+i, closingSize))
	}
	return s, mustMark(t, s)
}

// testStreamClosing: a call that fails because its stream is closed finds the stream's work done. Allocators rely on
// that when they reuse memory of a stream that the program closes.
func testStreamClosing(t *testing.T, open openFunc) {
	for name := range callsThatReportClosing(open(t), nil, nil) {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			next := d.DefaultStream()
			p := Alloc(t, d, closingSize)
			for round := range byte(3) {
				s, m := busyStream(t, d, p)
				closed := make(chan error, 1)
				go func() { closed <- s.Close() }()
				testkit.Must(t, keepAsking(callsThatReportClosing(d, s, next)[name]))
				if ok, err := s.Reached(m); !ok || err != nil {
					t.Errorf("%s says that the stream is closed, and its last mark: reached %v, %v", name, ok, err)
				}
				testkit.Must(t, next.Fill(p, round, closingSize)) // after no wait
				testkit.Must(t, <-closed)
				wantBytes(t, next, p, bytes.Repeat([]byte{round}, closingSize))
			}
			testkit.Must(t, d.Free(p))
		})
	}
}

// testMarksWhileClosing: as long as a stream that is being closed gives marks, they are behind all its work. Each is
// waited for with work on a byte of its own.
func testMarksWhileClosing(t *testing.T, open openFunc) {
	d := open(t)
	next := d.DefaultStream()
	p := Alloc(t, d, closingSize)
	for range 6 {
		s, m := busyStream(t, d, p)
		want := bytes.Repeat([]byte{100 + closingFills - 1}, closingSize)
		starts, closed := make(chan struct{}), make(chan error, 1)
		go func() { close(starts); closed <- s.Close() }()
		<-starts
		for i := range 64 {
			later, err := s.Mark()
			if err != nil {
				WantErr(t, "Mark of a stream that closes", err, driver.ErrClosed)
				break
			}
			if later.Stream != m.Stream || later.Tick < m.Tick {
				t.Fatalf("mark %+v after %+v", later, m)
			}
			m, want[i] = later, 1
			testkit.Must(t, next.WaitFor(s, m))
			testkit.Must(t, next.Fill(p+driver.Pointer(i), 1, 1))
			runtime.Gosched()
		}
		testkit.Must(t, <-closed)
		testkit.Must(t, next.WaitFor(s, m))
		wantBytes(t, next, p, want)
	}
	testkit.Must(t, d.Free(p))
}

// testDeviceClosing: the same while the device is closed, which ends its streams.
func testDeviceClosing(t *testing.T, open openFunc) {
	for name := range callsThatReportClosing(open(t), nil, nil) {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			p := Alloc(t, d, closingSize)
			s, m := busyStream(t, d, p)
			ask := callsThatReportClosing(d, s, d.DefaultStream())[name]
			closed := make(chan error, 1)
			go func() { closed <- d.Close() }()
			testkit.Must(t, keepAsking(ask))
			ok, err := s.Reached(m)
			if err == nil && !ok {
				err = fmt.Errorf("%s says that the stream is closed, and its last mark is not reached", name)
			}
			if !errors.Is(err, driver.ErrClosed) { // some devices know nothing any more
				testkit.Must(t, err)
			}
			testkit.Must(t, <-closed)
		})
	}
}
