package npy_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/compute"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/npy"
)

// Write an array in NumPy's format, and read it.
func Example() {
	p, err := compute.Open("host")
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	s := p.Scope() // releases the tensors
	defer s.Close()
	x, err := tensor.FromSlice(s.Place, []int32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := npy.Write(&file, x); err != nil {
		log.Fatal(err)
	}
	y, err := npy.Read(s.Place, &file)
	if err != nil {
		log.Fatal(err)
	}
	text, err := y.Text(tensor.NumPyStyle.Options())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// array([[1, 2, 3],
	//        [4, 5, 6]], dtype=int32)
}
