package rendezvous

import (
	"cmp"
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
	if o.Rank == 0 {
		return host(ctx, o)
	}
	return join(ctx, o)
}

func (o Options) address(i int) string { return net.JoinHostPort(o.Host, strconv.Itoa(o.Port+i)) }

// listenForRanks returns rank 0's listener, at the first free port. It listens at one address only: that of Listen or
// Host, which this machine may know by another name than the others do.
func (o Options) listenForRanks() (listen net.Listener, err error) {
	for i := range o.Ports {
		listen, err = net.Listen("tcp", net.JoinHostPort(cmp.Or(o.Listen, o.Host), strconv.Itoa(o.Port+i)))
		if err == nil || !inUse(err) {
			break
		}
	}
	if err == nil {
		return listen, nil
	}
	if !inUse(err) {
		err = fmt.Errorf("%w; set Listen to an address of this machine", err)
	}
	return nil, &MeetError{Address: o.address(0), Err: fmt.Errorf("rank 0 cannot listen: %w", err)}
}

// listenForLinks returns a listener at the address at which the other ranks reach this one: that by which it reaches
// rank 0, if c connects them. On rank 0's machine this is rank 0's.
func (o Options) listenForLinks(own, rank0 net.Addr) (net.Listener, error) {
	if o.Listen != "" {
		return net.Listen("tcp", net.JoinHostPort(o.Listen, "0"))
	}
	at := *own.(*net.TCPAddr)
	if at.IP.IsLoopback() {
		at = *rank0.(*net.TCPAddr)
	}
	at.Port = 0
	return net.ListenTCP("tcp", &at)
}

// host implements Meet for rank 0.
func host(ctx context.Context, o Options) (*Member, error) {
	listen, err := o.listenForRanks()
	if err != nil {
		return nil, err
	}
	links, err := o.listenForLinks(listen.Addr(), listen.Addr())
	if err != nil {
		listen.Close()
		return nil, &MeetError{Address: o.address(0), Err: fmt.Errorf("listening for links: %w", err)}
	}
	o.Me.Port = links.Addr().(*net.TCPAddr).Port
	g := &meeting{
		o: o, me: newMember(0, o.Size),
		conns: make([]*conn, o.Size), peers: make([]Peer, o.Size),
		full: make(chan struct{}), enough: make(chan error, 1),
	}
	g.peers[0] = o.Me
	g.me.listen = links
	if at := listen.Addr().(*net.TCPAddr).IP; at.IsLoopback() && !IsLoopback(o.Host) {
		g.note(fmt.Sprintf("ranks of other machines: this one knows %s as %v, so set Listen on rank 0", o.Host, at))
	}
	open, end := context.WithCancel(ctx)
	d := &door{
		listen: listen, key: o.Key, purpose: meetingPurpose, ranks: o.Size,
		time: min(handshakeTimeout, o.Limit), admit: g.receiveHello, reject: g.noteStranger,
	}
	d.tasks.Go(func() { d.open(open) })
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
	d.wait()
	if err != nil {
		links.Close()
		for _, c := range g.conns {
			if c != nil {
				c.wait()
			}
		}
		return nil, err
	}
	return g.me, nil
}

// meetingPurpose is the purpose of the connections to rank 0.
const meetingPurpose = "meeting"

// IsLoopback reports whether only its own machine reaches a host, whatever the machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// inUse reports whether a port is in use, and not unavailable for another reason.
func inUse(err error) bool {
	const windows = syscall.Errno(10048) // WSAEADDRINUSE
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, windows)
}
