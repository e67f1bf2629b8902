package rendezvous

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// A meeting is rank 0's list of the ranks that have joined.
type meeting struct {
	o  Options
	me *Member

	mu        sync.Mutex
	conns     []*conn // by rank; nil until it joins
	peers     []Peer
	refused   []string
	strangers int           // that were refused
	hub       *hub          // set when all have joined
	over      bool          // the meeting failed
	full      chan struct{} // closed when all have joined
	enough    chan error    // holds the error of a rank that stopped waiting
}

// receiveHello reads the hello of a connection that has proved itself.
func (g *meeting) receiveHello(c net.Conn, inTime func() bool) {
	m, err := read(c, maxHello)
	if err == nil && (m.Kind != hello || m.Peer == nil) {
		err = &protocolError{fmt.Sprintf("a message %v in place of hello", m.Kind)}
	}
	if open := inTime(); err == nil && open {
		err = g.admit(c, m)
	}
	if err == nil {
		return
	}
	defer c.Close()
	no := (*refusal)(nil)
	if !errors.As(err, &no) {
		g.note(fmt.Sprintf("%v: %v", c.RemoteAddr(), err))
		return
	}
	// Record the refusal first: the meeting may fail as soon as the rank receives it, and its error lists the refused
	// ranks.
	g.note(fmt.Sprintf("rank %d on %s (%v): %s", m.Rank, m.Peer.clip().Host, c.RemoteAddr(), no.text))
	watch := time.AfterFunc(min(handshakeTimeout, g.o.Limit), func() { c.Close() })
	defer watch.Stop()
	c.Write(message{Kind: refuse, Text: no.text}.encode())
}

// maxNotes is the number of refused connections that the error of a failed meeting lists. Half of them may be
// strangers'.
const maxNotes = 16

// noteStranger records a connection that did not prove itself.
func (g *meeting) noteStranger(from net.Addr, err error) {
	g.mu.Lock()
	full := g.strangers >= maxNotes/2
	g.strangers++
	g.mu.Unlock()
	if !full {
		g.note(fmt.Sprintf("%v: %v", from, err))
	}
}

// note records a refused rank, for the error of a meeting that fails.
func (g *meeting) note(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.refused) < maxNotes {
		g.refused = append(g.refused, text)
	}
}

// A refusal is the reason why a rank was refused.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// admit accepts a rank that has sent its hello.
func (g *meeting) admit(c net.Conn, m message) error {
	switch {
	case m.Size != g.o.Size:
		return &refusal{fmt.Sprintf("its size is %d ranks, but that of rank 0 is %d", m.Size, g.o.Size)}
	case m.Rank <= 0 || m.Rank >= g.o.Size:
		return &refusal{fmt.Sprintf("its rank is %d: want 1 to %d", m.Rank, g.o.Size-1)}
	}
	peer := m.Peer.clip()
	peer.Rank, peer.IP = m.Rank, ""
	if a := c.RemoteAddr().(*net.TCPAddr); !a.IP.IsLoopback() {
		peer.IP = a.IP.String()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.over || g.hub != nil:
		return &refusal{"the meeting is over"}
	case g.conns[m.Rank] != nil:
		return &refusal{fmt.Sprintf("there is a rank %d already, on %s", m.Rank, g.peers[m.Rank].Host)}
	}
	k := newConn(c, g.o.Limit)
	k.send(message{Kind: accept, Limit: g.o.Limit})
	g.conns[m.Rank], g.peers[m.Rank] = k, peer
	k.serve(maxBody, func(msg message) { g.receive(m.Rank, msg) }, func(err error) { g.ended(m.Rank, k, err) })
	if len(g.missing()) == 0 {
		tell := make([]func(message), g.o.Size)
		tell[0] = g.me.receive
		for i, k := range g.conns[1:] {
			tell[i+1] = k.send
		}
		g.me.Peers = g.peers // which do not change any more
		g.hub = newHub(tell, g.o.Limit)
		close(g.full)
	}
	return nil
}

func (g *meeting) missing() []int {
	var list []int
	for i, c := range g.conns {
		if i > 0 && c == nil {
			list = append(list, i)
		}
	}
	return list
}

// receive handles a message of an accepted rank.
func (g *meeting) receive(rank int, m message) {
	g.mu.Lock()
	h := g.hub
	g.mu.Unlock()
	switch {
	case h != nil:
		h.receive(rank, m)
	case m.Kind == cancelled:
		select {
		case g.enough <- fmt.Errorf("rank %d waits no longer: %s", rank, m.Text):
		default:
		}
	}
}

// ended handles the end of a connection. A rank whose connection ends before all have joined counts as missing and may
// join again.
func (g *meeting) ended(rank int, k *conn, err error) {
	g.mu.Lock()
	h := g.hub
	if h == nil && !g.over && g.conns[rank] == k {
		g.conns[rank] = nil
		if len(g.refused) < maxNotes {
			g.refused = append(g.refused, fmt.Sprintf("rank %d on %s joined and left: %v", rank, g.peers[rank].Host,
				err))
		}
		k.end()
	}
	g.mu.Unlock()
	if h != nil {
		h.ended(rank, fmt.Errorf("its connection to rank 0 ended: %w", err))
	}
}

// linksName is the number of random bytes that name the key of the links.
const linksName = 16

// begin tells all ranks that all have joined.
func (g *meeting) begin() error {
	m := g.me
	m.Limit, m.conns = g.o.Limit, g.conns
	m.up = func(msg message) { g.hub.receive(0, msg) }
	m.gone = func() { g.hub.ended(0, errors.New("it closed while others had not")) }
	name := make([]byte, linksName)
	rand.Read(name)
	m.key = g.o.Key.Child(name)
	if g.o.Decide != nil {
		var err error
		if m.Shared, err = g.o.Decide(g.peers); err != nil {
			return err
		}
	}
	g.hub.start(message{Kind: start, Links: name, Shared: m.Shared, Peers: g.peers})
	return nil
}

// fail ends the meeting for all ranks that joined.
func (g *meeting) fail(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	e := &MeetError{Address: g.o.address(0), Missing: g.missing(), Refused: g.refused, Err: err}
	for _, c := range g.conns {
		if c != nil {
			c.send(message{Kind: refuse, Text: err.Error(), Missing: e.Missing, Refused: e.Refused})
			c.end()
		}
	}
	return e
}
