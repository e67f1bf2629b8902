package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
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
	tasks.Go(func() { l.accept(&tasks) })
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

func (l *linking) accept(tasks *sync.WaitGroup) {
	room := make(chan struct{}, strangers+l.m.Size)
	for {
		c, err := l.m.listen.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			l.cancel(fmt.Errorf("rank %d on %s cannot be reached: %w", l.m.Rank, l.m.Peers[l.m.Rank].Host, err))
			return
		}
		select {
		case room <- struct{}{}:
			tasks.Go(func() {
				l.handshake(c)
				<-room
			})
		default:
			c.Close()
		}
	}
}

// handshake accepts a link from a rank with a higher number, and closes other connections.
func (l *linking) handshake(c net.Conn) {
	guard := l.guard(c)
	msg, err := read(c, maxHello)
	if err == nil && msg.Kind == link && bytes.Equal(msg.Token, l.m.token) && msg.Rank > l.m.Rank &&
		msg.Rank < l.m.Size {
		_, err = c.Write(message{Kind: accept}.encode())
		if err == nil && guard() && l.add(msg.Rank, c) {
			return
		}
	}
	guard()
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
	c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(l.m.Peers[to].Port)))
	if err != nil {
		return err
	}
	guard := l.guard(c)
	_, err = c.Write(message{Kind: link, Rank: l.m.Rank, Token: l.m.token}.encode())
	var msg message
	if err == nil {
		msg, err = read(c, maxHello)
	}
	if err == nil && msg.Kind != accept {
		err = &protocolError{fmt.Sprintf("a message %v in place of accept", msg.Kind)}
	}
	if guard() && err == nil && l.add(to, c) {
		return nil
	}
	c.Close()
	if err == nil {
		err = context.Cause(l.ctx)
	}
	return err
}

// guard closes c after the time limit of the handshake, or when the linking ends. Calling the returned function before
// prevents that; it reports whether c is still open.
func (l *linking) guard(c net.Conn) func() bool {
	watch := time.AfterFunc(handshakeTimeout, func() { c.Close() })
	stop := context.AfterFunc(l.ctx, func() { c.Close() })
	return func() bool { return watch.Stop() && stop() }
}
