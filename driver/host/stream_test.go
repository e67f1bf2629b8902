package host

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// open opens a small device that is closed when the test ends, with all its errors taken.
func open(t *testing.T) driver.Device {
	t.Helper()
	d, err := Open(Options{Total: 64 << 20})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, d.Close()) })
	return d
}

func newStreams(t *testing.T, d driver.Device, n int) []driver.Stream {
	t.Helper()
	streams := make([]driver.Stream, n)
	for i := range streams {
		streams[i] = drivertest.NewStream(t, d)
	}
	return streams
}

// hold makes s wait until the function that it returns is called.
func hold(t *testing.T, d driver.Device, s driver.Stream) (release func()) {
	t.Helper()
	gate := make(chan struct{})
	testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{Name: "gate", Func: func(driver.Memory) error {
		<-gate
		return nil
	}}))
	return func() { close(gate) }
}

func reached(t *testing.T, s driver.Stream, m driver.Mark) bool {
	t.Helper()
	ok, err := s.Reached(m)
	testkit.Must(t, err)
	return ok
}

// The tests below run in bubbles of testing/synctest: Wait returns when every goroutine is blocked, so "still waiting"
// is a fact and not a matter of time, and a bubble that leaves a goroutine behind fails.

func TestWorkIsDoneInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		s := newStreams(t, d, 1)[0]
		p := drivertest.Alloc(t, d, 4096)
		release := hold(t, d, s)
		testkit.Must(t, s.CopyIn(p, []byte{1, 2, 3})) // small: does not wait for its turn
		testkit.Must(t, s.Fill(p+1, 9, 1))
		m, err := s.Mark()
		testkit.Must(t, err)
		synctest.Wait()
		if reached(t, s, m) {
			t.Error("a mark behind held work is reached")
		}
		if !reached(t, s, driver.Mark{Stream: s.ID()}) {
			t.Error("the zero tick is not reached")
		}
		release()
		got := make([]byte, 3)
		testkit.Must(t, s.CopyOut(got, p))
		if !bytes.Equal(got, []byte{1, 9, 3}) {
			t.Errorf("got %v", got)
		}
		if !reached(t, s, m) {
			t.Error("a mark is not reached after CopyOut")
		}
	})
}

func TestSyncEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		s := d.DefaultStream()
		release := hold(t, d, s)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- s.Sync(ctx) }()
		synctest.Wait()
		if len(result) != 0 {
			t.Fatalf("Sync returned %v with work held", <-result)
		}
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("Sync: %v, want context.Canceled", err)
		}
		if err := s.Sync(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Sync with an ended context: %v", err)
		}
		release()
		testkit.Must(t, s.Sync(context.Background()))
		testkit.Must(t, s.Sync(ctx)) // nothing to wait for
	})
}

// returnsAfter fails the test unless call blocks until release is called.
func returnsAfter(t *testing.T, what string, call func() error, release func()) {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- call() }()
	synctest.Wait()
	if len(result) != 0 {
		t.Errorf("%s did not wait", what)
	}
	release()
	if err := <-result; err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestWhatWaits(t *testing.T) {
	for what, call := range map[string]func(d driver.Device, s driver.Stream, p driver.Pointer) error{
		"Free, for a stream that never used the block": func(d driver.Device, _ driver.Stream, p driver.Pointer) error {
			return d.Free(p)
		},
		"Sync": func(_ driver.Device, s driver.Stream, _ driver.Pointer) error { return s.Sync(context.Background()) },
		"CopyOut": func(_ driver.Device, s driver.Stream, p driver.Pointer) error {
			return s.CopyOut(make([]byte, 1), p)
		},
		"CopyIn of much": func(_ driver.Device, s driver.Stream, p driver.Pointer) error {
			return s.CopyIn(p, make([]byte, stagedBytes+1))
		},
		"Close of the stream": func(_ driver.Device, s driver.Stream, _ driver.Pointer) error { return s.Close() },
		"Close of the device": func(d driver.Device, _ driver.Stream, _ driver.Pointer) error { return d.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t)
				s := newStreams(t, d, 1)[0]
				p := drivertest.Alloc(t, d, 1<<20)
				testkit.Must(t, s.Fill(p, 1, 1<<20))
				release := hold(t, d, s)
				returnsAfter(t, what, func() error { return call(d, s, p) }, release)
			})
		})
	}
}

// TestFreeTwiceAtOnce: the second free is refused, even while the first still waits.
func TestFreeTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		p := drivertest.Alloc(t, d, 4096)
		release := hold(t, d, d.DefaultStream())
		returnsAfter(t, "Free", func() error { return d.Free(p) }, func() {
			if err := d.Free(p); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("the second Free: %v, want ErrInvalid", err)
			}
			release()
		})
	})
}

func TestWaitForHoldsTheStreamNotTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		streams := newStreams(t, d, 3)
		a, b, c := streams[0], streams[1], streams[2]
		release := hold(t, d, a)
		var order []string // the marks order the appends
		step := func(s driver.Stream, name string) {
			testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{Name: name, Func: func(driver.Memory) error {
				order = append(order, name)
				return nil
			}}))
		}
		mark := func(s driver.Stream) driver.Mark {
			m, err := s.Mark()
			testkit.Must(t, err)
			return m
		}
		step(a, "a")
		testkit.Must(t, b.WaitFor(a, mark(a)))
		step(b, "b")
		testkit.Must(t, c.WaitFor(b, mark(b)))
		step(c, "c")
		last := mark(c)
		synctest.Wait()
		if reached(t, c, last) {
			t.Error("c did not wait for a, which is held")
		}
		release()
		testkit.Must(t, c.Sync(context.Background()))
		if want := []string{"a", "b", "c"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

// TestErrorsSurfaceOnce: a stream's first error is returned by CopyOut and then by one Sync; later work is done.
func TestErrorsSurfaceOnce(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	for name, c := range map[string]struct {
		kernel func(driver.Memory) error
		want   error
	}{
		"error":  {func(driver.Memory) error { return first }, first},
		"panic":  {func(driver.Memory) error { panic("at the disco") }, ErrPanic},
		"goexit": {func(driver.Memory) error { runtime.Goexit(); return nil }, ErrPanic},
		"stray":  {func(m driver.Memory) error { return m.Load(make([]byte, 8), 64) }, driver.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t)
				s := newStreams(t, d, 1)[0]
				p := drivertest.Alloc(t, d, 1)
				launch := func(f func(driver.Memory) error) {
					testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{Name: name, Func: f}))
				}
				launch(c.kernel)
				launch(func(driver.Memory) error { return second })
				testkit.Must(t, s.Fill(p, 7, 1))
				got := make([]byte, 1)
				if err := s.CopyOut(got, p); !errors.Is(err, c.want) {
					t.Errorf("CopyOut: %v, want %v", err, c.want)
				}
				err := s.Sync(context.Background())
				if e := (*driver.Error)(nil); !errors.Is(err, c.want) || !errors.As(err, &e) || e.Call != "kernel "+name {
					t.Errorf("Sync: %v, want a *driver.Error of kernel %s with %v", err, name, c.want)
				}
				if got[0] != 7 {
					t.Error("the work after a kernel that failed was not done")
				}
				testkit.Must(t, s.Sync(context.Background()))
				testkit.Must(t, d.DefaultStream().Sync(context.Background()))
			})
		})
	}
}

// TestCloseReturnsWhatNoSyncDid: the error of queued work is not lost.
func TestCloseReturnsWhatNoSyncDid(t *testing.T) {
	bad := errors.New("bad")
	fails := driver.Kernel{Name: "fails", Func: func(driver.Memory) error { return bad }}
	d, err := Open(Options{Total: 1 << 20})
	testkit.Must(t, err)
	streams := newStreams(t, d, 2)
	for _, s := range streams {
		testkit.Must(t, d.Kernels().Launch(s, fails))
	}
	if err := streams[0].Close(); !errors.Is(err, bad) {
		t.Errorf("Close of a stream: %v, want %v", err, bad)
	}
	testkit.Must(t, streams[0].Close())
	if err := d.Close(); !errors.Is(err, bad) {
		t.Errorf("Close of the device: %v, want %v", err, bad)
	}
	testkit.Must(t, d.Close())
}
