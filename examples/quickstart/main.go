// The program that README.md shows: tensors, on a GPU where there is one.
package main

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/compute"
	_ "github.com/ashlar-go/ashlar/driver/cuda" // found at run time: the program runs without a GPU, too
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/tensor"
)

func main() {
	host, err := compute.Open("host")
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	best, err := compute.Open("cuda", "host") // the first that is there
	if err != nil {
		log.Fatal(err)
	}
	defer best.Close()

	near, far := host.Scope(), best.Scope() // what is made in a scope is released with it
	defer near.Close()
	defer far.Close()
	x, err := tensor.FromSlice(near.Place, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	y, err := x.To(far.Place)
	if err != nil {
		log.Fatal(err)
	}
	product, err := compute.MatMul(far.Place, y, y.T()) // a transposed view, not a copy
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(product)
}
