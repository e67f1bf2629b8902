package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// Meet connects the ranks. It returns when all have joined. The error matches *MeetError: ctx ended, here or on another
// rank that joined (then every rank that joined gets an error with the missing ranks), or this rank was refused. Close
// the member after use.
func Meet(ctx context.Context, o Options) (*Member, error) {
	o.Me.Rank = o.Rank
	o.Me = o.Me.clip()
	listen, err := net.Listen("tcp", bindTo(o.Host, 0))
	if err != nil {
		return nil, &MeetError{Address: o.address(0), Err: fmt.Errorf("listening for the other ranks: %w", err)}
	}
	o.Me.Port = listen.Addr().(*net.TCPAddr).Port
	var m *Member
	if o.Rank == 0 {
		m, err = host(ctx, o)
	} else {
		m, err = join(ctx, o)
	}
	if err != nil {
		listen.Close()
		return nil, err
	}
	m.listen = listen
	return m, nil
}

func (o Options) address(i int) string { return net.JoinHostPort(o.Host, strconv.Itoa(o.Port+i)) }

// bindTo returns the address on which to listen so that others reach this machine as host. This is every interface,
// because this machine may resolve the name differently. If host is local, all ranks are on one machine, and bindTo
// returns that address.
func bindTo(host string, port int) string {
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		host = ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// host implements Meet for rank 0.
func host(ctx context.Context, o Options) (*Member, error) {
	var listen net.Listener
	var err error
	for i := range o.Ports {
		listen, err = net.Listen("tcp", bindTo(o.Host, o.Port+i))
		if err == nil || !inUse(err) {
			break
		}
	}
	if err != nil {
		return nil, &MeetError{Address: o.address(0), Err: fmt.Errorf("rank 0 cannot listen: %w", err)}
	}
	g := &meeting{
		o: o, me: newMember(0, o.Size),
		conns: make([]*conn, o.Size), peers: make([]Peer, o.Size),
		full: make(chan struct{}), enough: make(chan error, 1),
	}
	g.peers[0] = o.Me
	var end context.CancelFunc
	g.open, end = context.WithCancel(ctx)
	g.tasks.Go(func() { g.accept(listen) })
	select {
	case <-g.full:
	case err = <-g.enough:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	listen.Close() // before the ranks continue, and perhaps meet here again
	if err == nil {
		err = g.begin()
	}
	if err != nil {
		err = g.fail(err)
	}
	end()
	g.tasks.Wait()
	if err != nil {
		for _, c := range g.conns {
			if c != nil {
				c.wait()
			}
		}
		return nil, err
	}
	return g.me, nil
}

// inUse reports whether a port is in use, and not unavailable for another reason.
func inUse(err error) bool {
	const windows = syscall.Errno(10048) // WSAEADDRINUSE
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, windows)
}
