package engine

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// Many goroutines use one engine until it is closed. Each call succeeds or returns ErrClosed. Only sessions that are
// open then may be reported as alive.
func TestCloseWhileEverybodyWorks(t *testing.T) {
	for range 5 {
		c, devs := onSim(t, 2, Config{EventLevel: 2, Devices: []DeviceConfig{{}, {Allocator: "arena:size=32MiB"}}})
		e, err := Open(t.Context(), c)
		testkit.Must(t, err)
		var turns atomic.Int64
		work := func(ctx context.Context, s *Session) error {
			x := floats(t, s.Place(), 100)
			if _, err := compute.Add(s.Place(), x, x); err != nil {
				return err
			}
			s.Event("work").End()
			return s.Collect(ctx)
		}
		uses := []func() error{
			func() error { _, err := e.DeviceInfo(0); return err },
			func() error { return e.MemorySummary(io.Discard) },
			func() error { _, err := e.Events(t.Context()); return err },
			func() error { return e.EachDevice(t.Context(), work) },
			func() error {
				s, err := e.NewSession()
				if err != nil {
					return err
				}
				err = s.WithDevice(0, func() error { return work(t.Context(), s) })
				if err == nil {
					err = s.WithDevice(1, func() error { return work(t.Context(), s) })
				}
				return errors.Join(err, s.Close())
			},
		}
		var all sync.WaitGroup
		for i := range 2 * len(uses) {
			all.Go(func() {
				for {
					turns.Add(1)
					if err := uses[i%len(uses)](); err != nil {
						if !errors.Is(err, driver.ErrClosed) {
							t.Errorf("use %d: %v", i%len(uses), err)
						}
						return
					}
				}
			})
		}
		for turns.Load() < 200 {
			if _, err := e.DeviceInfo(1); err != nil {
				t.Error(err)
			}
		}
		var alive *AliveError
		if err := e.Close(t.Context()); err != nil && (!errors.As(err, &alive) || len(alive.Tensors) > 0) {
			t.Errorf("Close: %v", err)
		}
		all.Wait()
		for _, dev := range devs {
			wellLeft(t, dev)
		}
	}
}

// Sessions of several goroutines share memory that is too small for all and is compacted, while Go's collector runs
// continuously and finds dropped tensors. A request without room returns an error. In the end all memory is free.
func TestMemoryOfManySessions(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	seed := testkit.Seed(t)
	e, _ := simulated(t, 2, Config{EventLevel: 2, Devices: []DeviceConfig{
		{Allocator: "arena", MemoryLimit: 512 << 10},
		{Allocator: "arena:size=256KiB"},
	}})
	var all sync.WaitGroup
	for g := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, g))
			s, err := e.NewSession()
			if err != nil {
				t.Error(err)
				return
			}
			var live []*tensor.Tensor
			some := func(p *tensor.Place, n int) (*tensor.Tensor, error) {
				return tensor.FromSlice(p, make([]float32, 1+r.IntN(n)))
			}
			steps := []func() error{
				func() error { // dropped, or kept for a while
					x, err := some(s.Place().Unscoped(), 4000)
					if err == nil && r.IntN(3) > 0 {
						live = append(live, x)
					}
					return err
				},
				func() error {
					if len(live) > 8 || len(live) > 0 && r.IntN(2) == 0 {
						live[0].Release()
						live = live[1:]
					}
					return nil
				},
				func() (err error) {
					if len(live) > 0 {
						_, err = s.CopyTo(t.Context(), live[len(live)-1], 1)
					}
					return err
				},
				func() error {
					if len(live) == 0 {
						return nil
					}
					y, err := compute.Add(s.Place(), live[0], 1)
					if err == nil {
						y.Release()
					}
					return err
				},
				func() error {
					if err := s.ReserveCache(1 + r.Int64N(20000)); err != nil {
						return err
					}
					err := s.UseCache(func() error {
						x, err := some(s.Place(), 100)
						if err == nil {
							x.Release()
						}
						return err
					})
					return errors.Join(err, s.FreeCache())
				},
				func() error { s.Event("step").End(); return nil },
				func() error { return s.Collect(t.Context()) },
			}
			for range 100 {
				i := r.IntN(len(steps))
				if err := steps[i](); err != nil && !errors.Is(err, mem.ErrNoMemory) {
					t.Errorf("step %d: %v", i, err)
				}
			}
			for _, x := range live {
				x.Release()
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s := session(t, e)
	for i := range 2 {
		testkit.Must(t, s.OnDevice(i, func() error { return s.Collect(t.Context()) }))
		if n := liveBytes(e.Allocator(i)); n != 0 {
			t.Errorf("%d bytes of device %d are allocated at the end, by %v", n, i, e.Place(i).Leaks())
		}
	}
}
