package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
)

// join is Meet for ranks other than 0: it dials rank 0's ports until rank 0 accepts.
func join(ctx context.Context, o Options) (*Member, error) {
	failed := func(err error) error { return &MeetError{Address: o.address(0), Err: err} }
	pause := 10 * time.Millisecond
	var last error
	for {
		for i := range o.Ports {
			a, err := dial(ctx, o, i)
			if err == nil {
				m, err := awaitStart(ctx, o, a)
				if err != nil {
					a.listen.Close()
				}
				return m, err
			}
			if no := (*refusal)(nil); errors.As(err, &no) {
				return nil, failed(fmt.Errorf("rank %d: %s", o.Rank, no.text))
			}
			// The error of a listener of another run says more than that of a port without one, or of the end of ctx.
			if last == nil || errors.Is(err, auth.ErrProof) || ctx.Err() == nil && !errors.Is(last, auth.ErrProof) {
				last = err
			}
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
			pause = min(2*pause, 500*time.Millisecond)
		case <-ctx.Done():
			wait.Stop()
			e := &MeetError{Address: o.address(0), Missing: []int{0}}
			e.Err = fmt.Errorf("%w: rank 0 was not there: %v", context.Cause(ctx), last)
			return nil, e
		}
	}
}

// dial connects to one of the ports and sends a hello. If it is accepted, it returns the connection, rank 0's limit and
// the listener for links.
func dial(ctx context.Context, o Options, i int) (*accepted, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", o.address(i))
	if err != nil {
		return nil, err
	}
	inTime := guard(ctx, raw, handshakeTimeout)
	a, err := o.hello(raw)
	switch open := inTime(); {
	case err == nil && open:
		return a, nil
	case err == nil:
		a.listen.Close()
		err = context.Cause(ctx)
	case errors.As(err, new(*refusal)):
	case !open:
		err = fmt.Errorf("the listener at %s does not answer", o.address(i))
	default:
		err = fmt.Errorf("the listener at %s is not rank 0: %w", o.address(i), err)
	}
	raw.Close()
	return nil, err
}

// An accepted is the connection of a rank that rank 0 has accepted.
type accepted struct {
	conn   net.Conn
	limit  time.Duration // rank 0's
	listen net.Listener  // for links
}

// hello proves this rank on a new connection, sends its hello and waits for the answer.
func (o Options) hello(raw net.Conn) (*accepted, error) {
	c, err := o.Key.Dial(raw, meetingPurpose)
	if err != nil {
		return nil, err
	}
	listen, err := o.listenForLinks(c.LocalAddr(), c.RemoteAddr())
	if err != nil {
		return nil, &refusal{fmt.Sprintf("it cannot listen for links: %v", err)}
	}
	o.Me.Port = listen.Addr().(*net.TCPAddr).Port
	var m message
	_, err = c.Write(message{Kind: hello, Rank: o.Rank, Size: o.Size, Peer: &o.Me}.encode())
	if err == nil {
		m, err = read(c, maxBody)
	}
	switch {
	case err != nil:
	case m.Kind == refuse:
		err = &refusal{"rank 0 turned it away: " + m.Text}
	case m.Kind != accept || m.Limit <= 0:
		err = fmt.Errorf("it sent a message %v", m.Kind)
	default:
		return &accepted{c, m.Limit, listen}, nil
	}
	listen.Close()
	return nil, err
}

// awaitStart waits, after rank 0 accepted this one, until all ranks have joined.
func awaitStart(ctx context.Context, o Options, a *accepted) (*Member, error) {
	k := newConn(a.conn, a.limit)
	m := newMember(o.Rank, o.Size)
	m.Limit, m.conns, m.up, m.gone = a.limit, []*conn{k}, k.send, func() {}
	m.listen, m.center = a.listen, a.conn.RemoteAddr().(*net.TCPAddr).IP
	begun := make(chan struct{})
	refused := func(e *MeetError) {
		e.Address = o.address(0)
		m.lose(e)
	}
	started := false // the reader's alone
	receive := func(msg message) {
		switch {
		case started:
			m.receive(msg)
		case msg.Kind == refuse:
			refused(&MeetError{Missing: msg.Missing, Refused: msg.Refused, Err: errors.New(msg.Text)})
		case msg.Kind == lost:
			refused(&MeetError{Err: fmt.Errorf("rank %d was lost: %s", msg.Rank, msg.Text)})
		case msg.Kind == start:
			if len(msg.Peers) != o.Size || len(msg.Links) != linksName {
				refused(&MeetError{Err: fmt.Errorf("rank 0 tells of %d ranks, and there are %d", len(msg.Peers),
					o.Size)})
				return
			}
			for i := range msg.Peers {
				msg.Peers[i].Rank = i
			}
			m.Peers, m.Shared, m.key = msg.Peers, msg.Shared, o.Key.Child(msg.Links)
			started = true
			close(begun)
		}
	}
	k.serve(maxBody+perPeer*o.Size, receive, func(err error) {
		if started {
			m.lose(&LostError{Rank: 0, Host: m.Peers[0].Host, Err: fmt.Errorf("the connection to it ended: %w", err)})
		} else {
			refused(&MeetError{Err: fmt.Errorf("the connection to rank 0 ended: %w", err)})
		}
	})
	joined := func() bool { // also if it was lost since
		select {
		case <-begun:
			return true
		default:
			return false
		}
	}
	select {
	case <-begun:
		return m, nil
	case <-m.lost:
		if joined() {
			return m, nil
		}
	case <-ctx.Done(): // rank 0 knows which ranks are missing
		cause := context.Cause(ctx)
		k.send(message{Kind: cancelled, Text: cause.Error()})
		answer := time.NewTimer(min(handshakeTimeout, a.limit))
		defer answer.Stop()
		select {
		case <-begun:
			return m, nil
		case <-m.lost:
			if joined() {
				return m, nil
			}
			if e, ok := m.Err().(*MeetError); ok && len(e.Missing) > 0 { // its text is the cause that this rank sent
				e.Err = cause
			}
		case <-answer.C:
			refused(&MeetError{Err: fmt.Errorf("%w: rank 0 does not answer", cause)})
		}
	}
	k.end()
	k.wait()
	return nil, m.Err()
}
