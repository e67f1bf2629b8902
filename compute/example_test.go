package compute_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/tensor"
)

// Subtract its mean from each row of a matrix.
func Example() {
	p, err := compute.Open("host") // or compute.Open("cuda", "host"), with driver/cuda imported
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	s := p.Scope() // releases every tensor made at its place
	defer s.Close()

	x, err := tensor.FromSlice(s.Place, []float32{1, 2, 3, 4, 6, 8}, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	mean, err := compute.Mean(s.Place, x, 1)
	if err != nil {
		log.Fatal(err)
	}
	column, err := mean.Unsqueeze(1) // a view
	if err != nil {
		log.Fatal(err)
	}
	centred, err := compute.Sub(s.Place, x, column) // broadcast
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(centred)
	// Output:
	// tensor([[-1.,  0.,  1.],
	//         [-2.,  0.,  2.]])
}
