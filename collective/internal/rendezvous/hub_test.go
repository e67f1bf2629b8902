package rendezvous

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// A rank that is gone makes its neighbours complain, and those of them: it is the one who is lost.
func TestComplaints(t *testing.T) {
	blames := func(rank, of int) func(*hub) {
		return func(h *hub) { h.receive(rank, message{Kind: blame, Rank: of, Text: "the link ended"}) }
	}
	ends := func(rank int) func(*hub) { return func(h *hub) { h.ended(rank, errors.New("EOF")) } }
	says := func(k kind, ranks ...int) func(*hub) {
		return func(h *hub) {
			for _, rank := range ranks {
				h.receive(rank, message{Kind: k})
			}
		}
	}
	for name, test := range map[string]struct {
		events []func(*hub)
		lost   int // -1: not decided
	}{
		"a complaint alone waits":                   {[]func(*hub){blames(0, 2)}, -1},
		"then the end comes":                        {[]func(*hub){blames(0, 2), ends(2)}, 2},
		"the end before":                            {[]func(*hub){ends(2), blames(0, 1)}, 2},
		"a chain":                                   {[]func(*hub){blames(0, 1), blames(1, 2), ends(2)}, 2},
		"a chain, seen from its end":                {[]func(*hub){blames(1, 2), blames(0, 1), ends(2)}, 2},
		"a link between two that live":              {[]func(*hub){blames(0, 1), blames(1, 0)}, 1},
		"a circle":                                  {[]func(*hub){blames(3, 0), blames(0, 1), blames(1, 3)}, 0},
		"a circle after a chain":                    {[]func(*hub){blames(3, 0), blames(0, 1), blames(1, 0)}, 0},
		"a complaint of oneself waits":              {[]func(*hub){blames(3, 3)}, -1},
		"for the end of another":                    {[]func(*hub){blames(3, 3), blames(1, 1), ends(2)}, 2},
		"a chain to one that complains of itself":   {[]func(*hub){blames(3, 1), blames(1, 1)}, -1},
		"a complaint of an unknown rank is ignored": {[]func(*hub){blames(3, 4), blames(3, -1)}, -1},
		"the first of one rank's counts":            {[]func(*hub){blames(0, 1), blames(0, 2), blames(1, 3), ends(3)}, 3},
		"a failure of its own is at once":           {[]func(*hub){blames(0, 1), func(h *hub) { h.receive(3, message{Kind: blame, Sure: true}) }}, 3},
		"who is leaving is lost all the same":       {[]func(*hub){says(leave, 1), ends(1)}, 1},
		"who does not close":                        {[]func(*hub){says(closing, 0, 3), says(leave, 1), says(overdue, 3)}, 2},
		"all close, and one is tired of it":         {[]func(*hub){says(closing, 0, 1, 2, 3), says(leave, 1, 2), says(overdue, 3)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			got := []int{}
			tell := make([]func(message), 4)
			for i := range tell {
				tell[i] = func(m message) {
					if i == 0 && m.Kind == lost {
						got = append(got, m.Rank)
					}
				}
			}
			h := newHub(tell, 4*bound)
			h.grace = bound
			for _, event := range test.events {
				event(h)
			}
			h.ended(0, errors.New("the first decision counts"))
			if want := max(test.lost, 0); len(got) != 1 || got[0] != want {
				t.Errorf("lost %v, want %d", got, want)
			}
		})
	}
}

// A rank may die as soon as it hears of the start. The others hear of the start first, and then of its death.
func TestDiesAtTheStart(t *testing.T) {
	var heard []kind
	var dies sync.WaitGroup
	var h *hub
	h = newHub([]func(message){
		func(message) {},
		func(m message) {
			if m.Kind == start {
				dies.Go(func() { h.ended(1, errors.New("EOF")) })
				time.Sleep(time.Millisecond) // so that it comes first, if it can
			}
		},
		func(m message) { heard = append(heard, m.Kind) },
	}, bound)
	h.start(message{Kind: start})
	dies.Wait()
	if !slices.Equal(heard, []kind{start, lost}) {
		t.Errorf("rank 2 heard %v", heard)
	}
}

// A rank that others complain about, and that is alive but silent, is lost after a while.
func TestGrace(t *testing.T) {
	told := make(chan message, 1)
	h := newHub([]func(message){func(m message) { told <- m }, func(message) {}, func(message) {}}, 4)
	h.receive(0, message{Kind: blame, Rank: 2, Text: "the link ended"})
	select {
	case m := <-told:
		if m.Kind != lost || m.Rank != 2 || m.Text != "the link ended" {
			t.Errorf("told %+v", m)
		}
	case <-within(t).Done():
		t.Error("hung")
	}
}

// Ranks of one process may close one after another; without leaving that is a failure as ever.
func TestLocal(t *testing.T) {
	members := NewLocal(3, "here", bound)
	for _, m := range members {
		m.Depart()
		m.Close()
	}
	if err := members[2].Leave(within(t)); err != nil {
		t.Error(err)
	}
	members = NewLocal(3, "here", bound)
	members[0].Depart()
	members[0].Close()
	if members[1].Err() != nil {
		t.Error("leaving is no death")
	}
	members[2].Close()
	losing(t, members[1], 2, "rank 2 on here: it closed while others had not")
}
