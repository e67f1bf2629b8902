package rendezvous

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// Links connects this rank to every other, and returns the connections by rank, nil for its own. All ranks call it,
// once. It ends with ctx, or when a rank is lost; a rank that another one cannot reach is lost, too. The caller owns
// the connections.
func (m *Member) Links(ctx context.Context) ([]net.Conn, error) {
	if m.Size == 1 {
		return make([]net.Conn, 1), nil
	}
	defer m.listen.Close()
	bound, unbind := m.Bind(ctx)
	defer unbind()
	ctx, cancel := context.WithCancelCause(bound)
	l := &linking{
		m: m, ctx: ctx, cancel: cancel, conns: make([]net.Conn, m.Size), missing: m.Size - 1,
		full: make(chan struct{}),
	}
	var tasks sync.WaitGroup
	d := &door{
		listen: m.listen, key: m.key, purpose: linkPurpose(m.Rank), ranks: m.Size, time: handshakeTimeout,
		admit: l.receiveLink, reject: func(net.Addr, error) {},
	}
	d.tasks.Go(func() { d.open(ctx) })
	for to := range m.Rank {
		tasks.Go(func() {
			if err := l.dial(to); err != nil { // it may have died: the hub decides
				m.Suspect(to, fmt.Errorf("rank %d on %s cannot reach it: %w", m.Rank, m.Peers[m.Rank].Host, err))
			}
		})
	}
	select {
	case <-l.full:
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	cancel(nil) // refuses connections that are still in the handshake
	m.listen.Close()
	tasks.Wait()
	d.wait()
	if err != nil {
		for _, c := range l.conns {
			if c != nil {
				c.Close()
			}
		}
		return nil, err
	}
	return l.conns, nil
}

// NoLinks stops listening for links. Ranks that do not call Links call it, all of them.
func (m *Member) NoLinks() {
	if m.listen != nil {
		m.listen.Close()
	}
}

// A linking holds the links that one rank has so far.
type linking struct {
	m      *Member
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	conns   []net.Conn
	missing int
	full    chan struct{} // closed when all links exist
}

// add keeps a link, unless there is one to that rank.
func (l *linking) add(rank int, c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[rank] != nil || l.ctx.Err() != nil {
		return false
	}
	l.conns[rank] = c
	if l.missing--; l.missing == 0 {
		close(l.full)
	}
	return true
}

// linkPurpose is the purpose of the links that a rank accepts.
func linkPurpose(rank int) string { return fmt.Sprint("link to rank ", rank) }

// receiveLink accepts a link from a rank with a higher number, and closes other connections.
func (l *linking) receiveLink(c net.Conn, inTime func() bool) {
	msg, err := read(c, maxHello)
	if err == nil && msg.Kind == link && msg.Rank > l.m.Rank && msg.Rank < l.m.Size {
		_, err = c.Write(message{Kind: accept}.encode())
		if err == nil && inTime() && l.add(msg.Rank, c) {
			return
		}
	}
	inTime()
	c.Close()
}

// dial makes the link to a rank with a lower number.
func (l *linking) dial(to int) error {
	ip := l.m.Peers[to].IP
	if ip == "" || to == 0 { // on rank 0's machine
		ip = l.m.center.String()
	}
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(l.m.Peers[to].Port)))
	if err != nil {
		return err
	}
	inTime := guard(l.ctx, raw, handshakeTimeout)
	c, err := l.introduce(raw, to)
	if inTime() && err == nil && l.add(to, c) {
		return nil
	}
	raw.Close()
	if err == nil {
		err = context.Cause(l.ctx)
	}
	return err
}

// introduce proves this rank on a new connection, sends its number and waits until the other rank accepts the link.
func (l *linking) introduce(raw net.Conn, to int) (net.Conn, error) {
	c, err := l.m.key.Dial(raw, linkPurpose(to))
	if err != nil {
		return nil, err
	}
	if _, err := c.Write((message{Kind: link, Rank: l.m.Rank}).encode()); err != nil {
		return nil, err
	}
	msg, err := read(c, maxHello)
	if err == nil && msg.Kind != accept {
		err = &protocolError{fmt.Sprintf("a message %v in place of accept", msg.Kind)}
	}
	return c, err
}
