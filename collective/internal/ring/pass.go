package ring

import (
	"sync"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
)

// A pass is the work of one call on this rank: it sends frames to one rank and receives frames from one. It sends frame
// f after it has received frame f-lag. In a ring, lag is the number of frames of a step; in a chain it is 0.
type pass struct {
	call Call
	with []*link // ranks to agree with

	to   *link
	out  int
	data func(f int) []byte
	lag  int

	from *link
	incoming
}

// perform makes the calls of a group. The error is the transport's.
func (t *transport) perform(group []member) error {
	t.busy.Lock()
	defer t.busy.Unlock()
	t.share(group)
	defer t.share(nil)

	var collectives []*member
	sends, receives := make([][]*member, t.size), make([][]*member, t.size)
	for i := range group {
		switch m := &group[i]; channelOf(m.Kind) {
		case sending:
			sends[m.Peer] = append(sends[m.Peer], m)
		case receiving:
			receives[m.Peer] = append(receives[m.Peer], m)
		case collective, channelCount:
			collectives = append(collectives, m)
		}
	}
	if err := t.copyToSelf(sends[t.rank], receives[t.rank]); err != nil {
		return err
	}
	sends[t.rank], receives[t.rank] = nil, nil

	var flows [][]*member
	for _, flow := range append(append(sends, receives...), collectives) {
		if len(flow) > 0 {
			flows = append(flows, flow)
		}
	}
	if len(flows) == 0 {
		return t.Err()
	}
	var others sync.WaitGroup
	for _, flow := range flows[1:] {
		others.Go(func() { _ = t.runAll(flow) }) // its error is that of the transport
	}
	_ = t.runAll(flows[0])
	others.Wait()
	return t.Err()
}

// share records the channels that the group shares with each rank.
func (t *transport) share(group []member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.links {
		if l == nil {
			continue
		}
		l.mine = 0
		for _, m := range group {
			if ln := channelOf(m.Kind); ln == collective || m.Peer == l.peer {
				l.mine |= 1 << ln
			}
		}
	}
}

// copyToSelf executes the sends of this rank to itself.
func (t *transport) copyToSelf(sends, receives []*member) error {
	for i, s := range sends {
		r := receives[i]
		if s.N != r.N || s.Type != r.Type {
			number := uint64(i + 1)
			return t.fail(&MismatchError{
				Rank: t.rank, Call: Call{Number: number, Kind: s.Kind, Type: s.Type, N: s.N, Peer: t.rank},
				Peer: t.rank, PeerCall: Call{Number: number, Kind: r.Kind, Type: r.Type, N: r.N, Peer: t.rank},
			}, true)
		}
		copy(r.dst, s.src)
	}
	return nil
}

// runAll runs calls one after another.
func (t *transport) runAll(calls []*member) error {
	for _, m := range calls {
		if err := t.run(t.plan(m)); err != nil {
			return err
		}
	}
	return nil
}

// run runs one call.
func (t *transport) run(p *pass) error {
	in := &p.incoming
	if p.from != nil {
		in.call = p.call.counterpart(p.from)
		t.mu.Lock()
		p.from.incoming[channelOf(in.call.Kind)] = in // before the other rank may send
		t.mu.Unlock()
		defer p.from.end(in)
	}
	if err := t.agree(p); err != nil {
		return err
	}
	for f := range p.out {
		if err := t.receive(p, f-p.lag+1); err != nil {
			return err
		}
		if err := p.to.write(frame{typ: dataFrame, call: p.call}, p.data(f)); err != nil {
			return err
		}
		if in.hold > 0 {
			t.mu.Lock()
			in.sent++
			t.mu.Unlock()
			t.changed.Broadcast()
		}
	}
	return t.receive(p, in.frames)
}

// receive waits until a pass has received n frames. It is an error if the other rank closes before.
func (t *transport) receive(p *pass, n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.err == nil && p.done < n {
		if p.from.over {
			return t.failLocked(&LinkError{Peer: p.from.peer, Err: errLeft}, true)
		}
		t.changed.Wait()
	}
	return t.err
}

// end removes the incoming data from the link. Afterwards the reader does not access the call's memory.
func (l *link) end(in *incoming) {
	t := l.t
	t.mu.Lock()
	defer t.mu.Unlock()
	l.incoming[channelOf(in.call.Kind)] = nil
	for in.used {
		t.changed.Wait()
	}
}

// counterpart returns the call that the other rank must make: the same, or the other side of a send.
func (c Call) counterpart(l *link) Call {
	switch c.Kind {
	case comm.Send:
		c.Kind, c.Peer = comm.Recv, l.t.rank
	case comm.Recv:
		c.Kind, c.Peer = comm.Send, l.t.rank
	case comm.AllReduce, comm.Broadcast, comm.AllGather, comm.ReduceScatter:
	}
	return c
}

// agree sends the call to the other ranks and waits for theirs.
func (t *transport) agree(p *pass) error {
	for _, l := range p.with {
		if err := l.write(frame{typ: callFrame, call: p.call}, nil); err != nil {
			return err
		}
	}
	for _, l := range p.with {
		want := p.call.counterpart(l)
		got, err := l.nextCall(p.call, channelOf(want.Kind))
		if err != nil {
			return err
		}
		if got != want {
			return t.fail(&MismatchError{Rank: t.rank, Call: p.call, Peer: l.peer, PeerCall: got}, true)
		}
	}
	return nil
}

// nextCall waits for the next call of the other rank in one of its channels.
func (l *link) nextCall(own Call, ln channel) (Call, error) {
	t := l.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.err == nil {
		if queue := &l.announced[ln]; len(*queue) > 0 {
			met := (*queue)[0]
			*queue = append((*queue)[:0], (*queue)[1:]...)
			return met.call, nil
		}
		if other, stuck := l.deadlocked(ln); stuck {
			return Call{}, t.failLocked(&MismatchError{Rank: t.rank, Call: own, Peer: l.peer, PeerCall: other}, true)
		}
		if l.over {
			return Call{}, t.failLocked(&LinkError{Peer: l.peer, Err: errLeft}, true)
		}
		t.changed.Wait()
	}
	return Call{}, t.err
}

// deadlocked reports whether the other rank cannot make a call in channel ln before this rank makes a call outside of
// its group: the two ranks would wait for each other forever. It returns the other rank's actual call. t.mu is held.
func (l *link) deadlocked(ln channel) (Call, bool) {
	for its := range channelCount {
		if queue := l.announced[its]; len(queue) > 0 && !l.mine.has(its.other()) && !queue[0].channels.has(ln) {
			return queue[0].call, true
		}
	}
	return Call{}, false
}
