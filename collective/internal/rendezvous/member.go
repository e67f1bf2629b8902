package rendezvous

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
)

// A Member is one rank among those that have met. It is safe for concurrent use.
type Member struct {
	Rank, Size int
	Peers      []Peer        // all ranks, by number
	Shared     []byte        // the result of Options.Decide
	Limit      time.Duration // of silence; that of rank 0

	up    func(message) // sends to the hub
	gone  func()        // tells the hub that this rank has ended
	conns []*conn       // rank 0: to all others; other ranks: to rank 0; entries may be nil

	key    *auth.Key    // of the links
	listen net.Listener // for links
	center net.IP       // rank 0's address, as this rank reached it

	mu       sync.Mutex
	arrived  int
	released int
	done     bool // all have left: no rank can be lost any more
	err      error
	change   chan struct{} // closed, and made anew, when released or done changes
	lost     chan struct{} // closed when err is set
	left     chan struct{} // closed when done is
	close    sync.Once
}

func newMember(rank, size int) *Member {
	return &Member{
		Rank: rank, Size: size, change: make(chan struct{}), lost: make(chan struct{}),
		left: make(chan struct{}),
	}
}

// ErrLeft is the error of a wait that cannot succeed because all ranks have left.
var ErrLeft = errors.New("all ranks have left")

// Lost returns a channel that is closed when a rank is lost; Err then names the rank.
func (m *Member) Lost() <-chan struct{} { return m.lost }

// Err returns nil, a *LostError, or the error that this rank passed to Fail.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Bind returns a context that ends with ctx, or when a rank is lost; its cause is then Err. Call the returned function
// after use.
func (m *Member) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-m.lost:
			cancel(m.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Barrier waits until every rank has reached as many barriers as this one, or ctx ends; then this call still counts.
// The error is ErrLeft if all ranks leave before.
func (m *Member) Barrier(ctx context.Context) error {
	m.mu.Lock()
	m.arrived++
	n := m.arrived
	m.mu.Unlock()
	m.up(message{Kind: arrive, N: n})
	return m.await(ctx, func() bool { return m.released >= n })
}

// Closing announces that this rank is going to leave, but still waits for work in which others may take part.
func (m *Member) Closing() { m.up(message{Kind: closing}) }

// Overdue reports with err that the others have not left in time. The first rank that has not called Closing is then
// lost, or this rank if there is none. Overdue returns when that has been decided.
func (m *Member) Overdue(err error) {
	m.up(message{Kind: overdue, Text: err.Error()})
	answer := time.NewTimer(closeTimeout)
	defer answer.Stop()
	select {
	case <-m.lost:
	case <-m.left:
	case <-answer.C:
		m.Fail(err, "")
	}
}

// Left returns a channel that is closed when all have left.
func (m *Member) Left() <-chan struct{} { return m.left }

// Depart announces that this rank no longer needs the others. Members of one process may then Close; others call Leave.
func (m *Member) Depart() { m.up(message{Kind: leave}) }

// Leave calls Depart and waits until all ranks have done so, or ctx ends.
func (m *Member) Leave(ctx context.Context) error {
	m.Depart()
	return m.await(ctx, func() bool { return m.done })
}

// await waits until ready returns true. It calls ready under the lock.
func (m *Member) await(ctx context.Context, ready func() bool) error {
	for {
		m.mu.Lock()
		ok, err, change := ready(), m.err, m.change
		if !ok && err == nil && m.done {
			err = ErrLeft
		}
		m.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-change:
		case <-m.lost:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Fail reports that this rank failed: its Err becomes err, and for the others this rank is lost. They receive the code
// unchanged.
func (m *Member) Fail(err error, code string) {
	if m.lose(err) {
		m.up(message{Kind: blame, Rank: m.Rank, Sure: true, Text: err.Error(), Code: code})
	}
}

// Suspect reports that a rank seems to be lost. A rank that reports its own number has an error that another rank may
// have caused. The hub decides soon: see Lost.
func (m *Member) Suspect(rank int, err error) {
	m.up(message{Kind: blame, Rank: rank, Text: err.Error()})
}

// receive handles a message of the hub.
func (m *Member) receive(msg message) {
	switch msg.Kind {
	case release, left:
		m.mu.Lock()
		m.released = max(m.released, msg.N)
		if msg.Kind == left && !m.done {
			m.done = true
			close(m.left)
		}
		close(m.change)
		m.change = make(chan struct{})
		m.mu.Unlock()
	case lost:
		if msg.Rank >= 0 && msg.Rank < m.Size {
			m.lose(&LostError{Rank: msg.Rank, Host: m.Peers[msg.Rank].Host, Code: msg.Code, Err: errors.New(msg.Text)})
		}
	}
}

// lose sets the error, unless one is set, and reports whether it did.
func (m *Member) lose(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || m.done {
		return false
	}
	m.err = err
	close(m.lost)
	return true
}

// Close ends the member and waits for its goroutines. Unless Leave has returned nil, this rank is then lost for the
// others, if none was lost before.
func (m *Member) Close() {
	m.close.Do(func() {
		m.lose(&LostError{Rank: m.Rank, Host: m.Peers[m.Rank].Host, Err: net.ErrClosed})
		m.gone()
		m.NoLinks()
		for _, c := range m.conns {
			if c != nil {
				c.end()
			}
		}
		for _, c := range m.conns {
			if c != nil {
				c.wait()
			}
		}
	})
}
