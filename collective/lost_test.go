package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// die ends a rank as the end of its process does: without a word.
func (c *Communicator) die() {
	c.member.Close()
	c.transport.Abort(errors.New("the test ended this rank"))
}

// makers are the ways to get communicators that are to fail.
var makers = map[string]func(testing.TB, int) []*Communicator{"local": quiet, "joined": joined}

// When a rank is gone, the others stop waiting, for queued calls or not, and each error names the rank.
func TestRankLost(t *testing.T) {
	for name, make := range makers {
		for _, victim := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, rank %d", name, victim), func(t *testing.T) {
				comms := make(t, 4)
				on(t, comms, operations)
				each(len(comms), func(rank int) {
					if rank == victim {
						comms[rank].die()
					} else {
						mourn(t, comms[rank], victim)
					}
				})
			})
		}
	}
}

// mourn works with a rank that is lost during the work.
func mourn(t *testing.T, c *Communicator, victim int) {
	x := tensor.Must(tensor.Zeros(c.place, dtype.Float32, 1<<16))
	defer x.Release()
	for range 3 {
		if err := c.AllReduce(nil, Sum, x, x); err != nil && !errors.Is(err, ErrRankLost) {
			t.Errorf("rank %d: all-reduce: %v", c.Rank(), err)
		}
	}
	var lost *RankError
	err := c.Wait(context.Background(), nil)
	if !errors.As(err, &lost) || lost.Rank != victim || !errors.Is(err, ErrRankLost) {
		t.Errorf("rank %d: Wait: %v", c.Rank(), err)
		return
	}
	for name, again := range map[string]error{
		"Err": c.Err(), "Barrier": c.Barrier(context.Background()), "AllReduce": c.AllReduce(nil, Sum, x, x),
		"Group": c.Group(func() error { return nil }), "Wait": c.Wait(context.Background(), nil), "Close": c.Close(),
		"Err after Close": c.Err(),
	} {
		if again == nil || again.Error() != err.Error() {
			t.Errorf("rank %d: %s: %v, and Wait %v", c.Rank(), name, again, err)
		}
	}
}

// A broken is a transport that has found something wrong.
type broken struct {
	comm.Transport
	err     error
	aborted chan error
}

func (b broken) Err() error { return b.err }

func (b broken) Abort(cause error) {
	b.Transport.Abort(cause)
	b.aborted <- cause
}

// An error of a transport is this rank's own, unless another rank dies at about that time.
func TestTransportFails(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint(dies), func(t *testing.T) { transportFails(t, dies) })
	}
}

func transportFails(t *testing.T, dies bool) {
	comms := quiet(t, 3)
	own := errors.New("a cable is out")
	c := newCommunicator(comms[0].config, comms[0].place, broken{comms[0].transport, own, make(chan error, 1)}, comms[0].member, true)
	t.Cleanup(func() { c.Close() })
	if dies {
		comms[2].die()
	}
	var lost *RankError
	err := c.Wait(context.Background(), nil)
	switch {
	case dies && (!errors.As(err, &lost) || lost.Rank != 2):
		t.Errorf("rank 2 died: %v", err)
	case !dies && (!errors.Is(err, own) || err.Error() != "collective: rank 0 failed: a cable is out"):
		t.Errorf("rank 0: %v", err)
	}
	if cause := <-c.transport.(broken).aborted; cause.Error() != err.Error() {
		t.Errorf("aborted for %v", cause)
	}
	<-comms[1].member.Lost()
	want := map[bool]string{false: "collective: rank 0 on ", true: "collective: rank 2 on "}[dies]
	if err := comms[1].Err(); !errors.Is(err, ErrRankLost) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("rank 1: %v", err)
	}
}

// Calls that do not belong together are an error on every rank.
func TestMismatch(t *testing.T) {
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			comms := make(t, 3)
			each(3, func(rank int) {
				c := comms[rank]
				x := tensor.Must(tensor.Zeros(c.place, dtype.Float32, 4+rank/2))
				defer x.Release()
				if err := c.AllReduce(nil, Sum, x, x); err != nil && !errors.Is(err, ErrMismatch) {
					t.Error(err)
				}
				err := c.Wait(context.Background(), nil)
				if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "rank 2") || !strings.Contains(err.Error(), "of 5 float32") {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		})
	}
}

// quiet is local for communicators that are to fail.
func quiet(t testing.TB, size int) []*Communicator {
	t.Helper()
	noLeaks(t)
	places := make([]*tensor.Place, size)
	for i := range places {
		places[i] = open(t, "host")
	}
	comms, err := Config{Timeout: 2 * time.Second}.Local(places...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, comms) })
	return comms
}

// A rank that never makes a call keeps no wait longer than its context, and no Close longer than the time limit.
func TestNoCall(t *testing.T) {
	comms := joined(t, 2)
	c := comms[0]
	c.config.Timeout = 50 * time.Millisecond // of Close alone: that of joining and of silence is long
	x := tensor.Must(tensor.Zeros(c.place, dtype.Float32, 4))
	defer x.Release()
	if err := c.AllReduce(nil, Sum, x, x); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	for _, err := range []error{c.Wait(ctx, nil), c.Barrier(ctx)} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait ended with %v", err)
		}
	}
	const late = "rank 0 closed, and not all others had after 50ms"
	var lost *RankError
	if err := c.Close(); !errors.As(err, &lost) || lost.Rank != 1 || !strings.Contains(err.Error(), late) {
		t.Errorf("Close: %v", err)
	}
	<-comms[1].member.Lost()
	for _, err := range []error{comms[1].Err(), comms[1].Wait(context.Background(), nil), comms[1].Close()} {
		if !errors.As(err, &lost) || lost.Rank != 1 || !strings.Contains(err.Error(), late) {
			t.Errorf("rank 1: %v", err)
		}
	}
}

// Of ranks that wait for one that has stopped to work, a rank that closes names that one: not itself, nor another that
// waits too.
func TestClosesWithoutOne(t *testing.T) {
	const size, idle = 4, 2
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			comms := make(t, size)
			each(size, func(rank int) { // so that no rank closes before the others are about to
				c := comms[rank]
				if rank != idle {
					c.config.Timeout = 50 * time.Millisecond
					x := tensor.Must(tensor.Zeros(c.place, dtype.Float32, 4))
					t.Cleanup(x.Release)
					if err := c.AllReduce(nil, Sum, x, x); err != nil {
						t.Error(err)
					}
					c.member.Closing()
				}
				if err := c.member.Barrier(context.Background()); err != nil {
					t.Error(err)
				}
			})
			t.Cleanup(func() { comms[idle].Close() })
			each(size, func(rank int) {
				if rank == idle {
					return
				}
				c := comms[rank]
				var lost *RankError
				if err := c.Close(); !errors.As(err, &lost) || lost.Rank != idle {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		})
	}
}
