package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
	"github.com/ashlar-go/ashlar/collective/internal/nccl"
	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
	"github.com/ashlar-go/ashlar/tensor"
)

// Join connects this rank to the other ranks of cfg. All ranks call it, in any order, and it returns when all have
// joined. The place p must be on the rank's device; with NCCL every rank needs its own GPU. The communicator uses the
// place, connections and a few goroutines until Close.
//
// If joining fails, every rank that joined gets a *JoinError. This happens when ctx ends or cfg.Timeout passes on one
// of them; the error then has the numbers of the missing ranks. It happens at once if devices or settings do not match.
// A rank whose number is taken, or whose Size differs, is refused alone, and the others wait for the right one. Other
// connections to the port (ranks of another run or with another secret, port scans) are closed, and delay no rank.
func Join(ctx context.Context, p *tensor.Place, cfg Config) (*Communicator, error) {
	if err := errors.Join(cfg.check(), cfg.checkAddress()); err != nil {
		return nil, err
	}
	key, err := cfg.key()
	if err != nil {
		return nil, err
	}
	cfg.Secret = "" // the communicator keeps the key only
	cfg.Timeout = cfg.timeout()
	late := fmt.Errorf("the %d ranks were not together within %v", cfg.Size, cfg.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, late)
	defer cancel()
	m, err := meet(ctx, p, cfg, key)
	if err != nil {
		return nil, publicError(err)
	}
	cfg.Timeout = m.Limit

	// From here on a failing rank reports its failure to the others.
	bound, unbind := m.Bind(ctx)
	defer unbind()
	t, backend, err := connect(bound, p, cfg, m)
	if err == nil {
		if err = m.Barrier(bound); err != nil {
			t.Abort(err)
			_ = t.Close() // its error is the cause of Abort
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
func meet(ctx context.Context, p *tensor.Place, cfg Config, key *auth.Key) (*rendezvous.Member, error) {
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
	host, port, _ := net.SplitHostPort(cfg.Address) // checked before
	first, _ := strconv.Atoi(port)
	return rendezvous.Meet(ctx, rendezvous.Options{
		Rank: cfg.Rank, Size: cfg.Size, Host: host, Port: first, Ports: max(cfg.Ports, 1), Listen: cfg.Listen,
		Key: key, Limit: cfg.Timeout, Me: me,
		Decide: func(peers []rendezvous.Peer) ([]byte, error) { return decide(cfg, peers) },
	})
}
