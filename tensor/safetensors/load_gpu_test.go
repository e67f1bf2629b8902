//go:build gpu && linux && (amd64 || arm64) && !nocuda

package safetensors_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// BenchmarkGPULoad loads a file of 4 GiB that the system has in memory.
func BenchmarkGPULoad(b *testing.B) {
	host, err := compute.Open("host")
	testkit.Must(b, err)
	gpu, err := compute.Open("cuda:0")
	testkit.Must(b, err)
	const count, length = 16, 64 << 20
	tensors := map[string]*tensor.Tensor{}
	whole, err := compute.NewGenerator(1).Integers(host, dtype.Int32, 0, 1<<30, length)
	testkit.Must(b, err)
	for i := range count {
		tensors[fmt.Sprint(i)] = whole
	}
	path := filepath.Join(b.TempDir(), "x.safetensors")
	testkit.Must(b, safetensors.WriteFile(path, tensors, nil))
	f, err := safetensors.Open(path, safetensors.Options{})
	testkit.Must(b, err)
	b.SetBytes(count * length * 4)
	for b.Loop() {
		scope := gpu.Scope()
		_, err := f.LoadAll(context.Background(), scope.Place, nil)
		testkit.Must(b, err)
		testkit.Must(b, gpu.Sync(context.Background()))
		scope.Close()
	}
	scope := gpu.Scope()
	all, err := f.LoadAll(context.Background(), scope.Place, nil)
	testkit.Must(b, err)
	want, err := tensor.ToSlice[int32](whole)
	testkit.Must(b, err)
	got, err := tensor.ToSlice[int32](all["7"])
	testkit.Must(b, err)
	for i := range want {
		if got[i] != want[i] {
			b.Fatalf("element %d is %d, want %d", i, got[i], want[i])
		}
	}
	scope.Close()
	testkit.Must(b, f.Close())
}
