// Quickstart is the program of README.md: tensors on the best device of the machine.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/tensor"
)

func main() {
	ctx := context.Background()
	eng, err := engine.Open(ctx, engine.Config{}) // a GPU if there is one, else the host
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close(ctx)
	s, err := eng.NewSession() // closing it releases the tensors made at its place
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	product, err := compute.MatMul(s.Place(), x, x.T()) // a transposed view, not a copy
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(product)
}
