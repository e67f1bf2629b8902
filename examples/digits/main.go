// Digits trains a network of two layers to read handwritten digits, with gradients written by hand. It runs on the host
// or on GPUs, on one device or data-parallel on several, in as little memory as compaction allows.
//
//	go run ./examples/digits
//	go run ./examples/digits -devices host,host:ordinal=1
//	go run ./examples/digits -devices cuda:0,cuda:1
//	go run ./examples/digits -compact=false        # out of memory
//
// It also runs as one rank of several, if a launcher's variables are set; each rank uses one device:
//
//	torchrun --nproc-per-node 2 --no-python ./digits
//
// network.go has the mathematics, and train.go the work of one device.
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
	devices []string // none: the best available
	epochs  int
	seed    uint64
	limit   int64 // bytes of each device
	compact bool
	ranks   *collective.Config // nil: a single process
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

// parse returns the options of the command line and the environment.
func parse(args []string, lookup func(string) (string, bool)) (options, error) {
	var o options
	flags := flag.NewFlagSet("digits", flag.ExitOnError)
	devices := flags.String("devices", "", `devices to train on, "host" or "cuda:0,cuda:1"; default: the best available`)
	flags.IntVar(&o.epochs, "epochs", 20, "passes over the images")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the initial weights and of the order of the images")
	flags.Int64Var(&o.limit, "limit", defaultLimit, "memory limit of each device in bytes")
	flags.BoolVar(&o.compact, "compact", true, "compact memory if that makes room")
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

// A result is the state of rank 0 at the end.
type result struct {
	accuracy float64   // the fraction of test images read correctly
	weights  []float32 // of the first layer
	moves    arena.MoveStats
}

func run(ctx context.Context, w io.Writer, o options) (r result, err error) {
	config := engine.Config{
		Distribution: o.ranks,
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
	for _, spec := range o.devices {
		config.Devices = append(config.Devices, engine.DeviceConfig{Spec: spec})
	}
	eng, err := engine.Open(ctx, config)
	if err != nil {
		return r, err
	}
	defer func() {
		if closed := eng.Close(context.WithoutCancel(ctx)); err == nil {
			err = closed // otherwise err is the cause
		}
	}()

	// When one rank fails, the others fail after it: the first error is the cause.
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
				comm.Abort(err) // ends the waits of the other ranks
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
