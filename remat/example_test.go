package remat_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/compute"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/remat"
	"github.com/ashlar-go/ashlar/tensor"
)

// A chain of 64 results, all of which are read in the end, runs in the memory of 12 of them.
func Example() {
	p, err := compute.Open("host") // or compute.Open("cuda", "host"), with driver/cuda imported
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	const size = 4 << 20 // bytes of a tensor
	r, err := remat.New(p, remat.Config{Budget: 12 * size})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close() // releases all tensors

	ones, err := tensor.FromSlice(r.Place(), make([]float32, size/4))
	if err != nil {
		log.Fatal(err)
	}
	defer ones.Release()
	x, err := r.Constant(ones) // it stays in memory
	if err != nil {
		log.Fatal(err)
	}
	results := []*remat.Tensor{x}
	for range 64 {
		y, err := remat.Apply2(r, compute.Add, results[len(results)-1], 1)
		if err != nil {
			log.Fatal(err)
		}
		results = append(results, y)
	}
	sum := 0.0
	for _, y := range results {
		numbers, err := remat.ToSlice[float32](y) // y is made again if it was evicted
		if err != nil {
			log.Fatal(err)
		}
		sum += float64(numbers[0])
	}
	s := r.Stats()
	fmt.Println("sum:", sum)
	fmt.Println("within the budget:", s.Peak <= s.Budget)
	fmt.Println("evicted and made again:", s.Evictions > 0 && s.Remade > 0)
	// Output:
	// sum: 2080
	// within the budget: true
	// evicted and made again: true
}
