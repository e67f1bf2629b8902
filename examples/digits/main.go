// Digits trains a network of two layers to read handwritten digits, with gradients written by hand: on the host or on GPUs, on
// one device or data-parallel on several, in as little memory as compaction allows.
//
//	go run ./examples/digits
//	go run ./examples/digits -devices host,host:ordinal=1
//	go run ./examples/digits -devices cuda:0,cuda:1
//	go run ./examples/digits -compact=false        # out of memory
//
// It runs as one rank of several, too, if a launcher's variables say so; each rank takes one device:
//
//	torchrun --nproc-per-node 2 --no-python ./digits
//
// network.go is the mathematics, train.go what a device does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/cuda"
	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

type options struct {
	devices []string // none: the best there is
	epochs  int
	seed    uint64
	limit   int64 // bytes of each device
	compact bool
	ranks   *collective.Config // nil: this process is all
}

func main() {
	log.SetFlags(0)
	o, err := parse(os.Args[1:], os.LookupEnv)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := run(ctx, os.Stdout, o); err != nil {
		log.Fatal(err)
	}
}

// parse makes options of the command line and the environment.
func parse(args []string, lookup func(string) (string, bool)) (options, error) {
	var o options
	flags := flag.NewFlagSet("digits", flag.ExitOnError)
	devices := flags.String("devices", "", `devices to train on, "host" or "cuda:0,cuda:1"; none is the best there is`)
	flags.IntVar(&o.epochs, "epochs", 20, "how often each image is shown")
	flags.Uint64Var(&o.seed, "seed", 1, "of the first weights and the order of the images")
	flags.Int64Var(&o.limit, "limit", defaultLimit, "bytes to do with on each device")
	flags.BoolVar(&o.compact, "compact", true, "bring blocks together where that makes room")
	flags.Parse(args) // exits if it fails
	if *devices != "" {
		o.devices = strings.Split(*devices, ",")
	}
	ranks, found, err := collective.FromEnv(lookup)
	if found {
		o.ranks = &ranks
	}
	return o, err
}

// A result is what rank 0 has at the end.
type result struct {
	accuracy float64   // the part of the test images that it reads right
	weights  []float32 // of the first layer
	moves    arena.MoveStats
}

func run(ctx context.Context, w io.Writer, o options) (r result, err error) {
	config := engine.Config{
		Distribution: o.ranks,
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
	for _, spec := range o.devices {
		config.Devices = append(config.Devices, engine.DeviceConfig{Spec: spec})
	}
	eng, err := engine.Open(ctx, config)
	if err != nil {
		return r, err
	}
	defer func() {
		if closed := eng.Close(context.WithoutCancel(ctx)); err == nil {
			err = closed // else it may only say again what went wrong
		}
	}()

	// When one rank fails, what the others wait for fails after it: the first error is the reason.
	all, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	err = eng.EachDevice(all, func(ctx context.Context, s *engine.Session) error {
		var comm *collective.Communicator
		if o.ranks != nil || eng.Devices() > 1 {
			var err error
			if comm, err = s.Communicator(); err != nil {
				return err
			}
		}
		found, err := train(ctx, s, comm, o, w)
		switch {
		case err != nil:
			fail(err)
			if comm != nil {
				comm.Abort(err) // the others may wait for this one
			}
			return context.Cause(all)
		case s.Device() == 0:
			r = found
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	if o.ranks != nil && o.ranks.Rank > 0 {
		return r, nil
	}
	for i := range eng.Devices() {
		info, err := eng.DeviceInfo(i)
		if err != nil {
			return r, err
		}
		a, _ := mem.Find[*arena.Arena](eng.Allocator(i))
		moves := a.Moves()
		if i == 0 {
			r.moves = moves
		}
		fmt.Fprintf(w, "%s: used at most %d of %d bytes; compactions: %d, which moved %d bytes\n",
			info.Spec, info.Peak, a.Size(), moves.Compactions, moves.Bytes)
	}
	return r, errors.Join(eng.WriteTree(ctx, w), eng.WriteTimeline(ctx, w))
}
