package rendezvous

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// A Member is one rank among those that have met. Safe for concurrent use.
type Member struct {
	Rank, Size int
	Peers      []Peer        // all ranks, by number
	Shared     []byte        // what rank 0 decided
	Limit      time.Duration // of silence, as rank 0 has it

	up    func(message) // to the hub
	gone  func()        // tells the hub that no more comes
	conns []*conn       // to all others of rank 0, or to rank 0; nil entries are none

	token  []byte       // what links prove themselves by
	listen net.Listener // for links
	center net.IP       // rank 0's address, as this rank reached it

	mu       sync.Mutex
	arrived  int
	released int
	done     bool // all left: nothing can go wrong any more
	err      error
	change   chan struct{} // closed, and made anew, when released or done changes
	lost     chan struct{} // closed when err is set
	left     chan struct{} // closed when done is
	close    sync.Once
}

func newMember(rank, size int) *Member {
	return &Member{Rank: rank, Size: size, change: make(chan struct{}), lost: make(chan struct{}), left: make(chan struct{})}
}

// ErrLeft is the error of a wait for what will not happen any more.
var ErrLeft = errors.New("all ranks have left")

// Lost is closed when a rank is lost; Err then says which.
func (m *Member) Lost() <-chan struct{} { return m.lost }

// Err is nil, a *LostError, or what this rank told Fail.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Bind returns a context that ends with ctx, or when a rank is lost: its cause is Err then. Call the function after
// use.
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

// Barrier waits until every rank has come to as many barriers as this one, or ctx ends: it has come all the same then.
// The error is ErrLeft if all have left before.
func (m *Member) Barrier(ctx context.Context) error {
	m.mu.Lock()
	m.arrived++
	n := m.arrived
	m.mu.Unlock()
	m.up(message{Kind: arrive, N: n})
	return m.await(ctx, func() bool { return m.released >= n })
}

// Closing says that this rank is going to leave, and still waits for work that the others may have a part in.
func (m *Member) Closing() { m.up(message{Kind: closing}) }

// Overdue says that the others have not left in time, for what err says: the first of those that have not said Closing
// is lost, or, if there is none, this rank. It returns when that has been decided.
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

// Left is closed when all have left.
func (m *Member) Left() <-chan struct{} { return m.left }

// Depart says that this rank needs the others no more. Members of one process may Close then; others Leave.
func (m *Member) Depart() { m.up(message{Kind: leave}) }

// Leave is Depart, and waits until all have done so, or ctx ends.
func (m *Member) Leave(ctx context.Context) error {
	m.Depart()
	return m.await(ctx, func() bool { return m.done })
}

// await waits until ready, which is called under the lock.
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

// Fail says that this rank failed: its Err is err, and for the others this rank is lost. They get the code unchanged.
func (m *Member) Fail(err error, code string) {
	if m.lose(err) {
		m.up(message{Kind: blame, Rank: m.Rank, Sure: true, Text: err.Error(), Code: code})
	}
}

// Suspect says that a rank seems to be lost; its own number, that something is wrong that may be another's doing. The
// hub decides, soon: see Lost.
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

// lose sets what is wrong, and reports whether nothing was before.
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

// Close ends the member, and returns when nothing of it is under way. Unless Leave has returned nil, the others lose
// this rank, if they have lost none before.
func (m *Member) Close() {
	m.close.Do(func() {
		m.lose(&LostError{Rank: m.Rank, Host: m.Peers[m.Rank].Host, Err: net.ErrClosed})
		m.gone()
		if m.listen != nil {
			m.listen.Close()
		}
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
