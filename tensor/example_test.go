package tensor_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/tensor"
)

// Owners are released, by a scope or by hand; views borrow the memory of their source.
func Example() {
	p := openHost()
	defer p.Close()
	s := p.Scope() // releases the tensors made at its place
	defer s.Close()

	x, err := tensor.FromSlice(s.Place, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	t := x.T() // a view: no copy, no release
	fmt.Println(t)
	fmt.Println(x.Owns(), t.Owns(), x.SameStorage(t))
	// Output:
	// tensor([[1., 4.],
	//         [2., 5.],
	//         [3., 6.]])
	// true false true
}
