// Transformer runs a block of a transformer, whose weights are in a safetensors file, token by token with a cache of keys and
// values that grows, and compares what comes out with what PyTorch made of it: in float32 or bfloat16, on the host or a GPU, in
// as little memory as compaction allows.
//
//	go run ./examples/transformer
//	go run ./examples/transformer -device cuda:0          # in bfloat16
//	go run ./examples/transformer -compact=false          # out of memory
//
// block.go is the mathematics.
package main

import (
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
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// prompt is how many tokens are there from the start. The others come one at a time.
const prompt = 8

// types says how a type does, by its name.
//
// The limits lie between what is alive at most, 374 KiB and 192 KiB, and what is needed without compaction, 421 KiB and
// 243 KiB, as bisecting -limit shows: each token makes larger keys and values, for which the holes of those before are too small.
//
// A number is rounded some sixteen times on its way from the input to the output, by at most 2⁻⁹ of it in bfloat16. Errors that
// know nothing of each other come to the root of that many times one of them: 4 × 2⁻⁹, and twice that is let pass. In float32,
// where rounding is 2⁻²⁴, sums of up to 192 products are most of the error.
var types = map[string]struct {
	dtype dtype.DType
	limit int64   // bytes
	bound float64 // of errors, as a part of the greatest output
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
}

func main() {
	log.SetFlags(0)
	o, err := parse(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := run(ctx, os.Stdout, o); err != nil {
		log.Fatal(err)
	}
}

// parse makes options of the command line.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("transformer", flag.ExitOnError)
	flags.StringVar(&o.file, "file", "examples/transformer/data/block.safetensors", "the block, what goes in, and what is to come out")
	flags.StringVar(&o.device, "device", "host", `what to run on, "host" or "cuda:0"`)
	flags.StringVar(&o.dtype, "type", "", "of the numbers, float32 or bfloat16; none is bfloat16 on GPUs and float32 elsewhere")
	flags.Int64Var(&o.limit, "limit", 0, "bytes to do with; 0 is what suits the type")
	flags.BoolVar(&o.compact, "compact", true, "bring blocks together where that makes room")
	flags.Parse(args) // exits if it fails
	switch {
	case o.dtype != "":
	case strings.HasPrefix(o.device, "cuda"):
		o.dtype = "bfloat16"
	default:
		o.dtype = "float32"
	}
	t, ok := types[o.dtype]
	if !ok {
		return o, fmt.Errorf("-type %s: want float32 or bfloat16", o.dtype)
	}
	if o.limit == 0 {
		o.limit = t.limit
	}
	return o, nil
}

// A result is how the run went.
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
			// The libraries would not pay for products this small; cuBLAS would want 32 MiB of the limit to work in.
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

	f, err := safetensors.Open(o.file, safetensors.Options{Copy: true}) // of the limit, on the host too
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
		return r, fmt.Errorf("that is too much: %s should do with %.2g", o.dtype, bound)
	}
	return r, nil
}

// infer returns what the block makes of the input in the file, and what it should.
func infer(ctx context.Context, s *engine.Session, f *safetensors.File, o options) (got, want []float32, err error) {
	defer catch(&err)
	p, d := s.Place(), types[o.dtype].dtype
	output := loadAs(p, f, "output", dtype.Float32)
	want = try(tensor.ToSlice[float32](output))
	output.Release()
	b := load(p, f, d)
	input := loadAs(p, f, "input", d)
	if o.compact {
		check(s.Engine().Freeze(0)) // side by side, and never moved again: now the cache comes and goes
	}
	var past cache
	for at, n := 0, prompt; at < input.Dim(0); at, n = at+n, 1 {
		check(ctx.Err())
		got = append(got, pass(p, b, try(input.Narrow(0, at, n)), &past)...)
	}
	return got, want, nil
}

// pass returns what the block makes of the next tokens.
func pass(p *tensor.Place, b *block, x *tensor.Tensor, past *cache) []float32 {
	s := p.Scope()
	defer s.Close()
	y := b.forward(s.Place, p, x, past)
	return try(tensor.ToSlice[float32](try(y.Cast(s.Place, dtype.Float32))))
}
