package collective

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/tensor"
)

// An operand may be moved as soon as an operation is queued, from another stream too: the move waits until the other
// ranks are through with it.
func TestMovingOperands(t *testing.T) {
	const size, rounds, count = 2, 20, 10_000
	for _, spec := range []string{"host", "sim:total=1GiB"} {
		t.Run(spec, func(t *testing.T) {
			noLeaks(t)
			arenas, places := make([]*arena.Arena, size), make([]*tensor.Place, size)
			for rank := range places {
				dev, err := driver.Open(spec)
				if err != nil {
					t.Fatal(err)
				}
				a, err := arena.New(dev, arena.Config{Size: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				b := host.New(dev, host.Options{})
				p := tensor.NewPlace(tensor.Config{Device: dev, Allocator: a, Backend: b})
				t.Cleanup(func() {
					if err := errors.Join(p.Close(), b.Close(), a.Close(), dev.Close()); err != nil {
						t.Error(err)
					}
				})
				arenas[rank], places[rank] = a, p
			}
			comms, err := Local(places...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeAll(t, comms) })
			begun := make(chan bool, rounds)
			on(t, comms, func(c *Communicator) (err error) {
				defer func() {
					if err != nil {
						c.Abort(err)
					}
				}()
				if c.Rank() == 0 {
					defer close(begun)
				}
				works, moves := stream(c), stream(c)
				defer works.Close()
				defer moves.Close()
				for range rounds {
					hole, x := floats(c, 0, count), floats(c, float32(c.Rank()), count)
					defer x.Release()
					if spec == "host" && c.Rank() == 1 { // rank 0 is in the operation, and has had its memory moved
						<-begun
					}
					if err := c.AllReduce(c.place.On(works), Sum, x, x); err != nil {
						return err
					}
					hole.Release()
					if err := arenas[c.Rank()].Compact(moves); err != nil {
						return err
					}
					if spec == "host" && c.Rank() == 0 {
						begun <- true
					}
					last, err := x.At(count - 1)
					if err != nil || last.Float64() != 2*(count-1)+1 {
						return errors.Join(err, errors.New("the sum is "+last.String()))
					}
				}
				return c.Wait(context.Background(), c.place.On(works))
			})
			for rank, a := range arenas {
				if m := a.Moves(); m.Blocks < rounds {
					t.Errorf("rank %d: hardly anything was moved: %+v", rank, m)
				}
			}
		})
	}
}

func stream(c *Communicator) driver.Stream {
	s, err := c.place.Device().NewStream(driver.StreamOptions{})
	if err != nil {
		panic(err)
	}
	return s
}
