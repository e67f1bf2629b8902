package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// sum adds a tensor of each rank's number over all ranks.
func sum(ctx context.Context, s *Session, c *collective.Communicator) error {
	x, err := tensor.FromSlice(s.Place(), []float32{float32(c.Rank()), 1})
	if err != nil {
		return err
	}
	if err := c.AllReduce(s.Place(), collective.Sum, x, x); err != nil {
		return err
	}
	got, err := tensor.ToSlice[float32](x)
	n := float32(c.Size())
	if want := []float32{n * (n - 1) / 2, n}; err == nil && !slices.Equal(got, want) {
		return fmt.Errorf("the sum is %v, want %v", got, want)
	}
	return err
}

// hosts returns n host devices.
func hosts(n int) Config {
	var c Config
	for i := range n {
		c.Devices = append(c.Devices, DeviceConfig{Spec: fmt.Sprintf("host:total=16MiB,ordinal=%d", i)})
	}
	return c
}

// The devices of an engine can communicate without configuration.
func TestCommunicatorsOfAnEngine(t *testing.T) {
	e, err := Open(t.Context(), hosts(3))
	testkit.Must(t, err)
	for range 3 {
		testkit.Must(t, e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
			c, err := s.Communicator()
			if err != nil {
				return err
			}
			if c.Rank() != s.Device() || c.Size() != 3 {
				t.Errorf("device %d is rank %d of %d", s.Device(), c.Rank(), c.Size())
			}
			return sum(ctx, s, c)
		}))
	}
	testkit.Must(t, e.Close(t.Context()))
	if _, err := e.Communicator(0); !errors.Is(err, ErrClosed) {
		t.Errorf("a communicator after Close: %v", err)
	}
}

// Handles returns the communicator and the BLAS handle, or an error that names the missing one: on the host there is no
// NCCL and no cuBLAS.
func TestDefect20_HandlesHaveTheCommunicatorAndTheBLASHandle(t *testing.T) {
	e, _ := simulated(t, 2, Config{})
	for i := range 2 {
		h, err := e.Handles(i)
		testkit.Must(t, err)
		c, err := h.Communicator()
		testkit.Must(t, err)
		if own, err := e.Communicator(i); c != own || err != nil || c.Rank() != i || c.Size() != 2 {
			t.Errorf("device %d has rank %d of %d, %v", i, c.Rank(), c.Size(), err)
		}
		for what, f := range map[string]func() (uintptr, error){"ncclComm_t": c.Handle, "cublasHandle_t": h.BLASHandle} {
			if n, err := f(); n != 0 || !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "host") {
				t.Errorf("the %s of a device without: %d, %v", what, n, err)
			}
		}
	}
}

// freePort returns the address of a port on which no other test or program listens.
func freePort(t testing.TB) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(testkit.Ports(t, 1)))
}

// Ranks meet in Open, and close together.
func TestDistribution(t *testing.T) {
	address := freePort(t)
	const n = 2
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			e, err := Open(t.Context(), Config{
				Devices:      []DeviceConfig{{Spec: "host:total=16MiB"}},
				Distribution: &collective.Config{Rank: rank, Size: n, Address: address},
			})
			if err != nil {
				t.Error(err)
				return
			}
			s, err := e.NewSession()
			testkit.Must(t, err)
			c, err := s.Communicator()
			testkit.Must(t, err)
			if c.Rank() != rank || c.Size() != n {
				t.Errorf("rank %d of %d, want %d of %d", c.Rank(), c.Size(), rank, n)
			}
			if err := sum(t.Context(), s, c); err != nil {
				t.Error(err)
			}
			testkit.Must(t, s.Close())
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A rank whose peers do not arrive waits until its context ends, and is then closed.
func TestRanksThatDoNotMeet(t *testing.T) {
	address := freePort(t)
	c, devs := onSim(t, 1, Config{Distribution: &collective.Config{Rank: 0, Size: 2, Address: address}})
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for { // until it waits
			if conn, err := net.Dial("tcp", address); err == nil {
				conn.Close()
				cancel(stop)
				return
			}
			runtime.Gosched()
		}
	}()
	if _, err := Open(ctx, c); !errors.Is(err, stop) {
		t.Errorf("Open: %v, want %v", err, stop)
	}
	wellLeft(t, devs[0])

	c, devs = onSim(t, 2, Config{Distribution: &collective.Config{Size: 2}})
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "a rank has one") {
		t.Errorf("two devices of one rank: %v", err)
	}
	for _, dev := range devs {
		testkit.Must(t, dev.Close())
	}
}

// A call of EachDevice that has begun on one device when Close is called also begins on the others, since its tasks may
// wait for each other.
func TestCloseBetweenTheTasksOfACall(t *testing.T) {
	e, err := Open(t.Context(), hosts(2))
	testkit.Must(t, err)
	running, finish, begun := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() {
		testkit.Must(t, e.EachDevice(t.Context(), func(_ context.Context, s *Session) error {
			if s.Device() == 1 {
				close(running)
				<-finish
			}
			return nil
		}))
	})
	<-running
	calls.Go(func() {
		err := e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
			if s.Device() == 0 {
				close(begun)
			}
			c, err := s.Communicator()
			if err != nil {
				return err
			}
			return sum(ctx, s, c)
		})
		if err != nil {
			t.Errorf("the call that had begun: %v", err)
		}
	})
	<-begun // on device 0; on device 1 it is queued
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Close while tasks run: %v", err)
	}
	close(finish)
	testkit.Must(t, e.Close(t.Context()))
	calls.Wait()
}

// Work that waits for a rank which Close refused ends with the communicator, and does not block Close forever.
func TestCloseWhileARankWaits(t *testing.T) {
	e, err := Open(t.Context(), hosts(2))
	testkit.Must(t, err)
	e.communicators.list, err = collective.Config{Timeout: 10 * time.Millisecond}.Local(e.places()...)
	testkit.Must(t, err)
	s, err := e.NewSession(0)
	testkit.Must(t, err)
	c, err := s.Communicator()
	testkit.Must(t, err)
	x := floats(t, s.Place(), 1)
	testkit.Must(t, c.AllReduce(s.Place(), collective.Sum, x, x)) // device 1 never does
	testkit.Must(t, s.Close())
	if err := e.Close(t.Context()); !errors.Is(err, c.Err()) || c.Err() == nil {
		t.Errorf("Close: %v, want %v", err, c.Err())
	}
}

// The stack of a task that panicked is in the error of EachDevice only, not in the errors that the panic causes.
func TestDefect24_APanicsStackIsPrintedOnce(t *testing.T) {
	e, err := Open(t.Context(), hosts(2))
	testkit.Must(t, err)
	err = e.EachDevice(t.Context(), func(_ context.Context, s *Session) error {
		if _, err := s.Communicator(); err != nil {
			return err
		}
		if s.Device() == 1 {
			panic("out of ideas")
		}
		return nil
	})
	closed := e.Close(t.Context())
	var panicked *PanicError
	if !errors.As(closed, &panicked) || !strings.Contains(closed.Error(), "device 1 panicked: out of ideas") {
		t.Errorf("Close: %v, want the panic that ended the communicators", closed)
	}
	if text := errors.Join(err, closed).Error(); strings.Count(text, "[running]:") != 1 || !strings.Contains(text, "TestDefect24") {
		t.Errorf("want the stack once:\n%s", text)
	}
}

// A task that panics ends the waits of the other tasks, even in calls without a context.
func TestPanicWhileOthersWait(t *testing.T) {
	e, err := Open(t.Context(), hosts(3))
	testkit.Must(t, err)
	var lost [3]error
	var begun sync.WaitGroup // tasks that have not begun when one panics are dropped, and wait for nothing
	begun.Add(3)
	err = e.EachDevice(t.Context(), func(_ context.Context, s *Session) error {
		begun.Done()
		c, err := s.Communicator()
		if err != nil {
			return err
		}
		if s.Device() == 1 {
			begun.Wait()
			panic("out of ideas")
		}
		x, err := tensor.FromSlice(s.Place(), []float32{1})
		if err != nil {
			return err
		}
		if err := c.AllReduce(s.Place(), collective.Sum, x, x); err == nil {
			_, _ = tensor.ToSlice[float32](x) // waits for device 1; what it reads means nothing
		}
		lost[s.Device()] = c.Wait(context.Background(), s.Place())
		return nil
	})
	var panicked *PanicError
	if !errors.As(err, &panicked) || panicked.Device != 1 {
		t.Errorf("EachDevice: %v, want the panic on device 1", err)
	}
	for i, err := range lost {
		var rank *collective.RankError
		if i != 1 && (!errors.As(err, &rank) || rank.Rank != 1) {
			t.Errorf("device %d: %v, want that rank 1 is lost", i, err)
		}
	}
	if err := e.Close(t.Context()); !strings.Contains(fmt.Sprint(err), "out of ideas") {
		t.Errorf("Close: %v, want what ended the communicators", err)
	}
}
