package safetensors_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ashlar-go/ashlar/compute"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// Write a file, and load one of its tensors.
func Example() {
	p, err := compute.Open("host")
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	s := p.Scope() // releases the tensors
	defer s.Close()
	weight, err := tensor.FromSlice(s.Place, []float32{1, 2, 3, 4}, 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")
	tensors := map[string]*tensor.Tensor{"layer.weight": weight}
	if err := safetensors.WriteFile(path, tensors, map[string]string{"format": "pt"}); err != nil {
		log.Fatal(err)
	}

	f, err := safetensors.OpenCheckpoint(path, safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	loaded, err := f.Load(s.Place, "layer.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f.Names(), f.Metadata())
	fmt.Println(loaded)
	// Output:
	// [layer.weight] map[format:pt]
	// tensor([[1., 2.],
	//         [3., 4.]])
}
