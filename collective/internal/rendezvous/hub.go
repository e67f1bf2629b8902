package rendezvous

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// maxGrace is how long a rank that another complains of may say nothing itself before it is taken for lost; a quarter of the
// limit of silence, if that is less.
const maxGrace = 2 * time.Second

// A hub counts what ranks have come to, and decides who is lost. Its ranks call hear and ended, and it calls tell.
type hub struct {
	mu       sync.Mutex
	tell     []func(message) // by rank; returns at once and calls nothing of the hub
	arrived  []int           // how many barriers each rank has come to
	closing  []bool          // ranks that leave when they can
	leaving  []bool          // and those that do
	released int
	local    bool // a rank that is leaving needs to wait for nobody
	over     bool // everybody left, or somebody is lost: nothing more is told
	grace    time.Duration
	blames   []*complaint // by the rank that complains; nil if it does not
	first    *complaint
	wait     *time.Timer // for the rank that first complains of
}

// A complaint says that a rank seems to be gone, or, of itself, that it can go on no more.
type complaint struct {
	of   int
	text string
}

func newHub(tell []func(message), limit time.Duration) *hub {
	n := len(tell)
	return &hub{
		tell: tell, arrived: make([]int, n), closing: make([]bool, n), leaving: make([]bool, n), grace: min(limit/4, maxGrace),
		blames: make([]*complaint, n),
	}
}

// hear takes a message from a rank.
func (h *hub) hear(rank int, m message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
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
			h.all(message{Kind: release, N: least})
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
		case m.Rank >= 0 && m.Rank < len(h.tell):
			h.suspect(rank, &complaint{m.Rank, m.Text})
		}
	}
}

// ended says that nothing more will come from a rank.
func (h *hub) ended(rank int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over && !(h.local && h.leaving[rank]) {
		h.lose(rank, err.Error())
	}
}

// suspect takes a complaint. A rank that is gone makes its neighbours complain, and as they give up, theirs of them: what
// counts is whom nobody can ask, the rank at the end of the chain that says nothing. Its connection is about to end; or it
// has noticed nothing yet, and after some grace the first complaint is believed. That goes for a rank that complains of
// itself too: it cannot tell whose fault it is. Complaints in a circle are of a link that broke between two ranks that
// live, and again the first counts.
func (h *hub) suspect(rank int, c *complaint) {
	if h.blames[rank] != nil {
		return
	}
	h.blames[rank] = c
	if h.first == nil {
		h.first = c
		h.wait = time.AfterFunc(h.grace, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if !h.over {
				h.lose(c.of, c.text)
			}
		})
	}
	last := h.first
	for range h.blames {
		next := h.blames[last.of]
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
	h.over = true
	if h.wait != nil {
		h.wait.Stop()
	}
	h.all(m)
}

func (h *hub) all(m message) {
	for _, tell := range h.tell {
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
		tell[i] = members[i].hear
	}
	h := newHub(tell, limit)
	h.local = true
	for i, m := range members {
		m.Peers, m.Limit = peers, limit
		m.up = func(msg message) { h.hear(i, msg) }
		m.gone = func() { h.ended(i, errors.New("it closed while others had not")) }
	}
	return members
}
