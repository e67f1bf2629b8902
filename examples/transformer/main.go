// Transformer runs a transformer block, with weights from a safetensors file, token by token with a growing cache of
// keys and values, and compares the output with PyTorch's: in float32 or bfloat16, on the host or a GPU, in as little
// memory as compaction allows.
//
//	go run ./examples/transformer
//	go run ./examples/transformer -device cuda:0          # in bfloat16
//	go run ./examples/transformer -compact=false          # out of memory
//
// With -train it trains a stack of such blocks instead, first with all the memory that this takes and then in half of
// it, by package remat. The losses are equal.
//
//	go run ./examples/transformer -train -memory 0.5
//	go run ./examples/transformer -train -limit 6291456    # as much as the device has
//
// block.go has the mathematics of inference, model.go that of training.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"os/signal"
	"strings"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/cuda"
	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// prompt is the number of tokens at the start. The others come one at a time.
const prompt = 8

// types has the settings for each type.
//
// The limits are between the peak of live memory, 374 KiB and 192 KiB, and the memory needed without compaction, 421
// KiB and 243 KiB, as found by bisecting -limit: each token makes larger keys and values, for which the holes left by
// the previous ones are too small.
//
// A number is rounded about sixteen times between input and output, in bfloat16 by at most 2⁻⁹ of its value.
// Independent errors add up to the root of their number times one error: 4 × 2⁻⁹. The bound is twice that. In float32,
// where rounding is 2⁻²⁴, sums of up to 192 products cause most of the error.
var types = map[string]struct {
	dtype dtype.DType
	limit int64   // bytes
	bound float64 // of errors, relative to the largest output
}{
	"float32":  {dtype.Float32, 398 << 10, 64.0 / (1 << 24)},
	"bfloat16": {dtype.BFloat16, 217 << 10, 8.0 / (1 << 9)},
}

type options struct {
	file    string
	device  string
	dtype   string
	limit   int64 // bytes
	compact bool

	training training
}

func main() {
	log.SetFlags(0)
	o, err := parse(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if o.training.enabled {
		_, _, err = train(ctx, os.Stdout, o)
	} else {
		_, err = run(ctx, os.Stdout, o)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// parse returns the options of the command line.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("transformer", flag.ExitOnError)
	flags.StringVar(&o.file, "file", "examples/transformer/data/block.safetensors", "file with the weights, the "+
		"input and the expected output")
	flags.StringVar(&o.device, "device", "host", `device, "host" or "cuda:0"`)
	flags.StringVar(&o.dtype, "type", "", "float32 or bfloat16; default: bfloat16 for inference on GPUs, else float32")
	flags.Int64Var(&o.limit, "limit", 0, "memory limit in bytes; 0 is the default of the type, or none with -train")
	flags.BoolVar(&o.compact, "compact", true, "compact memory if that makes room")
	trainingFlags(flags, &o.training)
	flags.Parse(args) // exits if it fails
	switch {
	case o.dtype != "":
	case o.training.enabled:
		o.dtype = "float32"
	case strings.HasPrefix(o.device, "cuda"):
		o.dtype = "bfloat16"
	default:
		o.dtype = "float32"
	}
	t, ok := types[o.dtype]
	if !ok {
		return o, fmt.Errorf("-type %s: want float32 or bfloat16", o.dtype)
	}
	if o.training.dtype = t.dtype; !o.training.enabled {
		o.limit = cmp.Or(o.limit, t.limit)
	}
	return o, nil
}

// A result is the outcome of a run.
type result struct {
	greatest float64 // output of PyTorch
	worst    float64 // error
	moves    arena.MoveStats
}

func run(ctx context.Context, w io.Writer, o options) (r result, err error) {
	config := engine.Config{
		Devices: []engine.DeviceConfig{{Spec: o.device}},
		Compute: compute.Options{
			Allocator: fmt.Sprintf("arena:size=%d", o.limit),
			// Libraries are no faster for products this small, and cuBLAS would need 32 MiB of workspace.
			Host: host.Options{NoBLAS: true},
			CUDA: cuda.Options{NoLibrary: true},
		},
	}
	if !o.compact {
		config.Compute.Allocator += ",compact=off"
	}
	eng, err := engine.Open(ctx, config)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, eng.Close(context.WithoutCancel(ctx))) }()
	s, err := eng.NewSession()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	f, err := safetensors.Open(o.file, safetensors.Options{Copy: true}) // within the limit, on the host too
	if err != nil {
		return r, err
	}
	defer f.Close()
	got, want, err := infer(ctx, s, f, o)
	if err != nil {
		return r, err
	}
	info, err := eng.DeviceInfo(0)
	if err != nil {
		return r, err
	}
	a, _ := mem.Find[*arena.Arena](eng.Allocator(0))
	r.moves = a.Moves()
	for i, y := range want {
		r.greatest = max(r.greatest, math.Abs(float64(y)))
		r.worst = max(r.worst, math.Abs(float64(got[i]-y)))
	}
	fmt.Fprintf(w, "%s on %s: %d numbers differ from PyTorch's by at most %.2g, which is %.2g of the greatest\n",
		o.dtype, info.Spec, len(got), r.worst, r.worst/r.greatest)
	fmt.Fprintf(w, "used at most %d of %d bytes; compactions: %d, which moved %d bytes\n",
		info.Peak, a.Size(), r.moves.Compactions, r.moves.Bytes)
	if bound := types[o.dtype].bound; !(r.worst <= bound*r.greatest) {
		return r, fmt.Errorf("error too large: the bound for %s is %.2g", o.dtype, bound)
	}
	return r, nil
}

// infer returns the output of the block for the input in the file, and the expected output.
func infer(ctx context.Context, s *engine.Session, f *safetensors.File, o options) (got, want []float32, err error) {
	defer try.Catch(&err)
	p, d := s.Place(), types[o.dtype].dtype
	output := loadAs(p, f, "output", dtype.Float32)
	want = try.Of(tensor.ToSlice[float32](output))
	output.Release()
	b := load(p, f, d)
	input := loadAs(p, f, "input", d)
	if o.compact {
		try.Check(s.Engine().Freeze(0)) // the weights move together and stay; from here on only the cache changes
	}
	var past cache
	for at, n := 0, prompt; at < input.Dim(0); at, n = at+n, 1 {
		try.Check(ctx.Err())
		got = append(got, pass(p, b, try.Of(input.Narrow(0, at, n)), &past)...)
	}
	return got, want, nil
}

// pass returns the output of the block for the next tokens.
func pass(p *tensor.Place, b *block, x *tensor.Tensor, past *cache) []float32 {
	s := p.Scope()
	defer s.Close()
	y := b.forward(s.Place, p, x, past)
	return try.Of(tensor.ToSlice[float32](try.Of(y.Cast(s.Place, dtype.Float32))))
}
