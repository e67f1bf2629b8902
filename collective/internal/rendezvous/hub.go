package rendezvous

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// maxGrace is the maximum time that a rank may stay silent after a complaint of it before it is lost; a quarter of the
// limit of silence, if that is less.
const maxGrace = 2 * time.Second

// A hub counts the barriers that ranks have reached, and decides which rank is lost. Ranks call receive and ended; the
// hub calls send.
type hub struct {
	mu         sync.Mutex
	send       []func(message) // by rank; returns at once and calls nothing of the hub
	arrived    []int           // number of barriers that each rank has reached
	closing    []bool          // ranks that have said Closing
	leaving    []bool          // ranks that have left
	released   int
	local      bool // ranks of one process do not wait for each other when they leave
	decided    bool // all ranks left, or one is lost: no more messages are sent
	grace      time.Duration
	complaints []*complaint // by the rank that complains; nil if it does not
	first      *complaint
	wait       *time.Timer // for the rank of the first complaint
}

// A complaint reports that a rank seems to be gone. A rank that complains of itself has failed.
type complaint struct {
	of   int
	text string
}

func newHub(tell []func(message), limit time.Duration) *hub {
	n := len(tell)
	return &hub{
		send: tell, arrived: make([]int, n), closing: make([]bool, n), leaving: make([]bool, n),
		grace:      min(limit/4, maxGrace),
		complaints: make([]*complaint, n),
	}
}

// start tells all ranks that all have joined, unless one is lost already. It holds mu, so that no rank hears of a loss
// before it hears of the start.
func (h *hub) start(m message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.decided {
		h.broadcast(m)
	}
}

// receive handles a message of a rank.
func (h *hub) receive(rank int, m message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.decided {
		return
	}
	switch m.Kind {
	case arrive:
		h.arrived[rank] = max(h.arrived[rank], m.N)
		least := h.arrived[0]
		for _, n := range h.arrived {
			least = min(least, n)
		}
		if least > h.released {
			h.released = least
			h.broadcast(message{Kind: release, N: least})
		}
	case closing:
		h.closing[rank] = true
	case leave:
		h.closing[rank], h.leaving[rank] = true, true
		if !slices.Contains(h.leaving, false) {
			h.finish(message{Kind: left})
		}
	case overdue:
		if idle := slices.Index(h.closing, false); idle >= 0 {
			rank = idle
		}
		h.lose(rank, m.Text)
	case blame:
		switch {
		case m.Sure:
			h.finish(message{Kind: lost, Rank: rank, Text: m.Text, Code: m.Code})
		case m.Rank >= 0 && m.Rank < len(h.send):
			h.suspect(rank, &complaint{m.Rank, m.Text})
		}
	}
}

// ended handles the end of a rank's connection.
func (h *hub) ended(rank int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.decided && !(h.local && h.leaving[rank]) {
		h.lose(rank, err.Error())
	}
}

// suspect handles a complaint. When a rank is gone, its neighbours complain of it. When they stop, their neighbours
// complain of them. The lost rank is the one at the end of this chain, which does not complain: its connection is about
// to end. If it does not end within the grace, the first complaint is believed. The same holds for a rank that
// complains of itself, since it cannot know the cause. A circle of complaints means a broken link between two live
// ranks: again the first counts.
func (h *hub) suspect(rank int, c *complaint) {
	if h.complaints[rank] != nil {
		return
	}
	h.complaints[rank] = c
	if h.first == nil {
		h.first = c
		h.wait = time.AfterFunc(h.grace, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if !h.decided {
				h.lose(c.of, c.text)
			}
		})
	}
	last := h.first
	for range h.complaints {
		next := h.complaints[last.of]
		if next == nil || next.of == last.of {
			return
		}
		last = next
	}
	h.lose(h.first.of, h.first.text)
}

func (h *hub) lose(rank int, text string) {
	h.finish(message{Kind: lost, Rank: rank, Text: text})
}

func (h *hub) finish(m message) {
	h.decided = true
	if h.wait != nil {
		h.wait.Stop()
	}
	h.broadcast(m)
}

func (h *hub) broadcast(m message) {
	for _, tell := range h.send {
		tell(m)
	}
}

// NewLocal returns the members of one process, by rank. Host is the machine's name.
func NewLocal(n int, host string, limit time.Duration) []*Member {
	members := make([]*Member, n)
	tell := make([]func(message), n)
	peers := make([]Peer, n)
	for i := range members {
		peers[i] = Peer{Rank: i, Host: host}
		members[i] = newMember(i, n)
		tell[i] = members[i].receive
	}
	h := newHub(tell, limit)
	h.local = true
	for i, m := range members {
		m.Peers, m.Limit = peers, limit
		m.up = func(msg message) { h.receive(i, msg) }
		m.gone = func() { h.ended(i, errors.New("it closed while others had not")) }
	}
	return members
}
