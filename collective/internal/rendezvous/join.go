package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// join is Meet for ranks other than 0: it dials rank 0's ports until rank 0 accepts.
func join(ctx context.Context, o Options) (*Member, error) {
	failed := func(err error) error { return &MeetError{Address: o.address(0), Err: err} }
	pause := 10 * time.Millisecond
	var last error
	for {
		for i := range o.Ports {
			c, limit, err := dial(ctx, o, i)
			if err == nil {
				return awaitStart(ctx, o, c, limit)
			}
			if no := (*refusal)(nil); errors.As(err, &no) && !no.other {
				return nil, failed(fmt.Errorf("rank 0 turned rank %d away: %s", o.Rank, no.text))
			}
			if last == nil || ctx.Err() == nil {
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

// dial connects to one of the ports and sends a hello. If it is accepted, it returns the connection and rank 0's limit.
func dial(ctx context.Context, o Options, i int) (net.Conn, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", o.address(i))
	if err != nil {
		return nil, 0, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	var m message
	_, err = c.Write(message{Kind: hello, ID: o.ID, Rank: o.Rank, Size: o.Size, Peer: &o.Me}.encode())
	if err == nil {
		m, err = read(c, maxBody)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("the listener at %s does not answer", o.address(i))
	case err != nil:
		err = fmt.Errorf("the listener at %s is not rank 0: %w", o.address(i), err)
	case m.Kind == refuse:
		err = &refusal{m.Text, m.Other}
	case m.Kind != accept || m.Limit <= 0:
		err = fmt.Errorf("the listener at %s is not rank 0: it sent a message %v", o.address(i), m.Kind)
	case !stop():
		err = context.Cause(ctx)
	default:
		return c, m.Limit, nil
	}
	stop()
	c.Close()
	return nil, 0, err
}

// awaitStart waits, after rank 0 accepted this one, until all ranks have joined.
func awaitStart(ctx context.Context, o Options, c net.Conn, limit time.Duration) (*Member, error) {
	k := newConn(c, limit)
	m := newMember(o.Rank, o.Size)
	m.Limit, m.conns, m.up, m.gone = limit, []*conn{k}, k.send, func() {}
	m.center = c.RemoteAddr().(*net.TCPAddr).IP
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
			if len(msg.Peers) != o.Size || len(msg.Token) != 16 {
				refused(&MeetError{Err: fmt.Errorf("rank 0 tells of %d ranks, and there are %d", len(msg.Peers),
					o.Size)})
				return
			}
			for i := range msg.Peers {
				msg.Peers[i].Rank = i
			}
			m.Peers, m.Shared, m.token = msg.Peers, msg.Shared, msg.Token
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
	select {
	case <-begun:
		return m, nil
	case <-m.lost:
	case <-ctx.Done(): // rank 0 knows which ranks are missing
		cause := context.Cause(ctx)
		k.send(message{Kind: cancelled, Text: cause.Error()})
		answer := time.NewTimer(min(handshakeTimeout, limit))
		defer answer.Stop()
		select {
		case <-begun:
			return m, nil
		case <-m.lost:
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
