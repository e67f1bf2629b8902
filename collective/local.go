package collective

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/collective/internal/nccl"
	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
	"github.com/ashlar-go/ashlar/collective/internal/ring"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/tensor"
)

// Local makes communicators for ranks that are all in this process, one for each place, in their order. Each must be
// used by its own goroutine, and each place must be on its own device. NCCL is used if all are on CUDA devices. Close
// all communicators before any of the places.
//
// On host devices several places may be streams of one device, but then ranks can deadlock: Free on such a device waits
// for all of its streams, and so for a rank that may wait for the freeing rank. Use this only in tests with a caching
// allocator.
func Local(places ...*tensor.Place) ([]*Communicator, error) { return Config{}.Local(places...) }

// Local is like the function Local, with c's Timeout, Backend and Libraries.
func (c Config) Local(places ...*tensor.Place) ([]*Communicator, error) {
	c.Size, c.LocalSize, c.Timeout = len(places), len(places), c.timeout()
	if err := c.check(); err != nil {
		return nil, err
	}
	gpus := 0
	for i, p := range places {
		for j, q := range places[:i] {
			if p.SameDevice(q) && (p.Stream().ID() == q.Stream().ID() || p.Device().Info().Driver == cuda &&
				c.Backend != Host) {
				return nil, refuse(ErrDevice, "Local", "places %d and %d are both on %v: want a device, or on the "+
					"host a stream, for each", j, i, p)
			}
		}
		if p.Device().Info().Driver == cuda {
			gpus++
		}
	}
	switch {
	case c.Backend == "" && gpus == len(places):
		c.Backend = NCCL
	case c.Backend == "":
		c.Backend = Host
	case c.Backend == NCCL && gpus < len(places):
		return nil, refuse(ErrDevice, "Local", "backend %q wants every place on a CUDA device: %d of %d are", NCCL,
			gpus, len(places))
	}
	transports, err := c.transports(places)
	if err != nil {
		return nil, fmt.Errorf("collective: Local: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	members := rendezvous.NewLocal(len(places), host, c.Timeout)
	communicators := make([]*Communicator, len(places))
	for i, p := range places {
		c.Rank, c.LocalRank = i, i
		communicators[i] = newCommunicator(c, p, transports[i], members[i], true)
	}
	return communicators, nil
}

// transports makes a transport for each place.
func (c Config) transports(places []*tensor.Place) ([]comm.Transport, error) {
	devs := make([]driver.Device, len(places))
	for i, p := range places {
		devs[i] = p.Device()
	}
	if c.Backend == Host {
		return ring.Local(devs)
	}
	o := nccl.Options{Libraries: c.Libraries}
	id, err := nccl.NewID(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.Timeout, fmt.Errorf("NCCL did not connect the "+
		"ranks within %v", c.Timeout))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	transports := make([]comm.Transport, len(devs))
	var ranks sync.WaitGroup
	for i, dev := range devs {
		ranks.Go(func() {
			t, err := nccl.New(ctx, dev, o, id, i, len(devs))
			if err != nil {
				fail(fmt.Errorf("rank %d: %w", i, err)) // the first error ends the others' wait
				return
			}
			transports[i] = t
		})
	}
	ranks.Wait()
	if err := context.Cause(ctx); err != nil {
		for _, t := range transports {
			if t != nil {
				t.Abort(err)
				_ = t.Close() // it says what it was aborted for
			}
		}
		return nil, err
	}
	return transports, nil
}
