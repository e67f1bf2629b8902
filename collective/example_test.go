package collective_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/compute"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/tensor"
)

// Three ranks in one process, each with a device, a part of the numbers and a goroutine.
func ExampleLocal() {
	var places []*tensor.Place
	for range 3 {
		p, err := compute.Open("host")
		if err != nil {
			panic(err)
		}
		defer p.Close()
		places = append(places, p)
	}
	ranks, err := collective.Local(places...)
	if err != nil {
		panic(err)
	}
	sums := make([]string, len(ranks))
	var running sync.WaitGroup
	for i, c := range ranks {
		running.Go(func() {
			x := tensor.Must(tensor.FromSlice(places[i], []float32{1, 2, float32(c.Rank())}))
			defer x.Release()
			if err := c.AllReduce(nil, collective.Sum, x, x); err != nil {
				panic(err)
			}
			if err := c.Wait(context.Background(), nil); err != nil {
				panic(err) // a *collective.RankError, if a rank was lost
			}
			sums[i] = x.String()
		})
	}
	running.Wait()
	for i, c := range ranks {
		fmt.Printf("rank %d of %d: %s\n", c.Rank(), c.Size(), sums[i])
		if err := c.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// rank 0 of 3: tensor([3., 6., 3.])
	// rank 1 of 3: tensor([3., 6., 3.])
	// rank 2 of 3: tensor([3., 6., 3.])
}
