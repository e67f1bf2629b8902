package compute_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/tensor"
)

// chain works through operations with one, two and three operands and two results, and returns the bytes of what comes out.
func chain(p *tensor.Place, seed uint64) ([]byte, error) {
	s := p.Scope()
	defer s.Close()
	var out bytes.Buffer
	g := compute.NewGenerator(seed)
	x, err := g.Normal(s.Place, dtype.Float32, 24, 32)
	for range 6 {
		if err != nil {
			return nil, err
		}
		y, err := compute.MatMul(s.Place, x, x.T())
		if err != nil {
			return nil, err
		}
		z, err := compute.Softmax(s.Place, y, -1)
		if err != nil {
			return nil, err
		}
		values, indices, err := compute.TopK(s.Place, z, 8, 1)
		if err != nil {
			return nil, err
		}
		turned, err := x.T().Clone(s.Place)
		if err != nil {
			return nil, err
		}
		for _, t := range []*tensor.Tensor{values, indices, turned} {
			b := make([]byte, t.Size())
			if err := t.Read(b); err != nil {
				return nil, err
			}
			out.Write(b)
		}
		next, err := compute.MatMul(s.Place, z, x)
		if err != nil {
			return nil, err
		}
		if next, err = compute.Add(s.Place, next, x); err != nil {
			return nil, err
		}
		for _, t := range []*tensor.Tensor{x, y, z, values, indices, turned} {
			s.Keep(t).Release()
		}
		x = next
	}
	return out.Bytes(), nil
}

// restless is an arena that moves what was allocated last with each further request: it puts a spacer in front of each
// block, takes the one before away, and compacts.
type restless struct {
	*arena.Arena
	mu     sync.Mutex
	spacer mem.Block
}

func (a *restless) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	spacer, err := a.Arena.Alloc(s, 512)
	if err != nil {
		return mem.Block{}, err
	}
	b, err := a.Arena.Alloc(s, size)
	a.Free(a.spacer)
	a.spacer = spacer
	return b, errors.Join(err, a.Compact(s))
}

// meddling is a backend that has memory moved when it has been told where the operands lie, and has not queued its work.
type meddling struct {
	backend.Backend
	a *restless
}

func (m *meddling) meddle(q backend.Queue) error {
	b, err := m.a.Alloc(q.Stream, 512)
	m.a.Free(b)
	return err
}

func (m *meddling) MatMul(q backend.Queue, dst, x, y backend.Array) error {
	return errors.Join(m.meddle(q), m.Backend.MatMul(q, dst, x, y))
}

func (m *meddling) Binary(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) error {
	return errors.Join(m.meddle(q), m.Backend.Binary(q, op, dst, x, y))
}

func (m *meddling) TopK(q backend.Queue, least bool, values, indices *backend.Array, x backend.Array, axis int) error {
	return errors.Join(m.meddle(q), m.Backend.TopK(q, least, values, indices, x, axis))
}

func (m *meddling) Copy(q backend.Queue, dst, src backend.Array) error {
	return errors.Join(m.meddle(q), m.Backend.Copy(q, dst, src))
}

// placeOnRestless returns a place on a device whose memory moves all the time.
func placeOnRestless(t *testing.T, dev driver.Device) (*tensor.Place, *arena.Arena) {
	t.Helper()
	inner, err := arena.New(dev, arena.Config{Size: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b, err := compute.NewBackend(dev)
	if err != nil {
		t.Fatal(err)
	}
	a := &restless{Arena: inner}
	p := tensor.NewPlace(tensor.Config{Device: dev, Allocator: a, Backend: &meddling{b, a}})
	t.Cleanup(func() {
		err := errors.Join(p.Close(), b.Close())
		a.Free(a.spacer)
		if err := errors.Join(err, inner.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return p, inner
}

// TestOperationsOverMovingMemory has goroutines on streams of their own compute in memory that moves with every
// allocation, and wants the bits that memory which stays gives. On the simulated device, which finds work that is not
// ordered, there is one goroutine.
func TestOperationsOverMovingMemory(t *testing.T) {
	still := placeOn(t, smallHost(t))
	for name, c := range map[string]struct {
		dev     driver.Device
		workers uint64
	}{"host": {smallHost(t), 3}, "sim": {sim.New(sim.Options{Seed: 3, Total: 64 << 20}), 1}} {
		t.Run(name, func(t *testing.T) {
			moving, a := placeOnRestless(t, c.dev)
			var workers sync.WaitGroup
			for worker := range c.workers {
				stream := drivertest.NewStream(t, moving.Device())
				workers.Go(func() {
					want, err := chain(still, worker)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := chain(moving.On(stream), worker)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("worker %d: the results differ from those in memory that stays (%v)", worker, err)
					}
				})
			}
			workers.Wait()
			if moves := a.Moves(); moves.Blocks < 20 {
				t.Errorf("hardly anything was moved: %+v", moves)
			}
		})
	}
}
