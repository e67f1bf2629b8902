package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/ashlar-go/ashlar/collective/internal/nccl"
	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
	"github.com/ashlar-go/ashlar/tensor"
)

// Join brings this rank together with the others that cfg speaks of: all call it, in any order, and it returns on all
// when all are there. P's device is the rank's; with NCCL, every rank has another GPU. The communicator uses the place
// until Close, and keeps connections and a few goroutines until then.
//
// If the ranks do not meet, every rank that came gets a *JoinError: when ctx ends or cfg.Timeout has passed on one of
// them, with the numbers of those that are missing; at once, if devices or settings do not fit together. Who has a
// number that another rank has, or another size, is turned away alone, and the others go on waiting for the right one.
// Strangers at the port (another run's ranks, a browser, a port scan) are refused, and delay no rank.
func Join(ctx context.Context, p *tensor.Place, cfg Config) (*Communicator, error) {
	if err := errors.Join(cfg.check(), cfg.checkAddress()); err != nil {
		return nil, err
	}
	cfg.Timeout = cfg.timeout()
	late := fmt.Errorf("the %d ranks were not together within %v", cfg.Size, cfg.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, late)
	defer cancel()
	m, err := meet(ctx, p, cfg)
	if err != nil {
		return nil, publicError(err)
	}
	cfg.Timeout = m.Limit

	// From here on a rank that fails tells the others.
	bound, unbind := m.Bind(ctx)
	defer unbind()
	t, backend, err := connect(bound, p, cfg, m)
	if err == nil {
		if err = m.Barrier(bound); err != nil {
			t.Abort(err)
			_ = t.Close() // it says what it was aborted for
		}
	}
	if err != nil {
		m.Fail(err, "")
		err = &JoinError{Address: cfg.Address, Err: publicError(m.Err())}
		m.Close()
		return nil, err
	}
	cfg.Backend = backend
	return newCommunicator(cfg, p, t, m, false), nil
}

// meet connects to the other ranks.
func meet(ctx context.Context, p *tensor.Place, cfg Config) (*rendezvous.Member, error) {
	info := p.Device().Info()
	me := rendezvous.Peer{Driver: info.Driver, Device: info.Name, UUID: info.UUID, Backend: cfg.Backend}
	var err error
	if me.Host, err = os.Hostname(); err != nil {
		me.Host = "a machine without a name"
	}
	if info.Driver == cuda && cfg.Backend != Host {
		if _, me.Library, err = nccl.Find(nccl.Options{Libraries: cfg.Libraries}); err != nil {
			me.Lacks = err.Error()
		}
	}
	if cfg.Size == 1 {
		m := rendezvous.NewLocal(1, me.Host, cfg.Timeout)[0]
		m.Shared, err = decide(cfg, []rendezvous.Peer{me})
		if err != nil {
			return nil, &JoinError{Err: err}
		}
		return m, nil
	}
	host, port, _ := net.SplitHostPort(cfg.Address) // which check has seen
	first, _ := strconv.Atoi(port)
	return rendezvous.Meet(ctx, rendezvous.Options{
		Rank: cfg.Rank, Size: cfg.Size, Host: host, Port: first, Ports: max(cfg.Ports, 1), ID: cfg.ID, Limit: cfg.Timeout, Me: me,
		Decide: func(peers []rendezvous.Peer) ([]byte, error) { return decide(cfg, peers) },
	})
}
