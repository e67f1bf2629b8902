package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/npy"
)

const (
	batch    = 64 // images per step, on all devices together
	rate     = 0.1
	momentum = 0.9

	// defaultLimit is for one device or two. Bisecting -limit shows that 856 KiB suffice, the live memory during the
	// test. Without compaction one device needs 937 KiB, and each of two 927 KiB: the velocities, allocated in the
	// first step, divide the free memory.
	defaultLimit = 896 << 10
)

var (
	//go:embed data/images.npy
	imagesFile []byte
	//go:embed data/labels.npy
	labelsFile []byte
)

// A trainer is one device's part of the work.
type trainer struct {
	session        *engine.Session
	comm           *collective.Communicator // with the other ranks; nil if there are none
	rank, ranks    int
	net            *network
	images, labels *tensor.Tensor // uint8[n pixels] and uint8[n]; every fifth is a test image
	learn          []int64        // the indices of the training images
}

// train trains a network on the session's device, which is one of comm's ranks or the only one. Rank 0 tests the
// network and reports.
func train(
	ctx context.Context, s *engine.Session, comm *collective.Communicator, o options, w io.Writer,
) (r result, err error) {
	defer try.Catch(&err)
	t := newTrainer(s, comm, o.seed)
	for epoch := 1; epoch <= o.epochs; epoch++ {
		try.Check(ctx.Err())
		last := epoch == o.epochs
		if last {
			try.Check(s.SetEventLevel(engine.DefaultEventLevel))
		}
		order := rand.New(rand.NewPCG(o.seed, uint64(epoch))).Perm(len(t.learn)) // the same on all ranks
		loss, steps := 0.0, len(order)/batch
		for i := range steps {
			loss += t.step(order[i*batch:][:batch]) / float64(steps)
		}
		if !last && epoch%5 != 0 {
			continue
		}
		if t.rank == 0 {
			r.accuracy = t.test()
			fmt.Fprintf(w, "epoch %2d: loss %.4f, %.1f %% of the test images read right\n", epoch, loss, 100*r.accuracy)
		}
	}
	r.weights = try.Of(tensor.ToSlice[float32](t.net.w1))
	return r, nil
}

func newTrainer(s *engine.Session, comm *collective.Communicator, seed uint64) *trainer {
	t := &trainer{session: s, comm: comm, ranks: 1}
	if comm != nil {
		t.rank, t.ranks = comm.Rank(), comm.Size()
	}
	if batch%t.ranks != 0 {
		try.Check(fmt.Errorf("a batch of %d images cannot be divided among %d devices", batch, t.ranks))
	}
	p := s.Place()
	images := try.Of(npy.Read(p, bytes.NewReader(imagesFile)))
	t.images = try.Of(images.Reshape(-1, pixels))
	t.labels = try.Of(npy.Read(p, bytes.NewReader(labelsFile)))
	for i := range t.labels.Len() {
		if i%5 != 0 {
			t.learn = append(t.learn, int64(i))
		}
	}
	t.net = newNetwork(p, seed+uint64(t.rank))
	if comm != nil { // every rank starts with the weights of rank 0
		for _, w := range t.net.parameters() {
			try.Check(comm.Broadcast(p, w, 0))
		}
	}
	return t
}

// step learns from this rank's part of a batch, and returns the loss.
func (t *trainer) step(batch []int) (loss float64) {
	defer t.session.Event("step").End()
	step := t.session.Place().Scope()
	defer step.Close()
	p := step.Place

	m := len(batch) / t.ranks
	mine := make([]int64, m)
	for i := range mine {
		mine[i] = t.learn[batch[t.rank*m+i]]
	}
	which := try.Of(tensor.FromSlice(p, mine))
	x := prepare(p, try.Of(compute.IndexSelect(p, t.images, 0, which)))
	labels := try.Of(compute.IndexSelect(p, t.labels, 0, which))

	forward := t.session.Event("forward", engine.FLOPs(float64(m*operations)))
	h, y := t.net.forward(p, x)
	forward.End()
	backward := t.session.Event("backward", engine.FLOPs(float64(2*m*operations)))
	mean, gradients := t.net.backward(p, x, h, y, labels)
	backward.End()
	if t.comm != nil {
		average := t.session.Event("average")
		for _, g := range append(gradients, mean) {
			try.Check(t.comm.AllReduce(p, collective.Avg, g, g))
		}
		average.End()
	}
	update := t.session.Event("update")
	t.net.update(step, gradients, rate, momentum)
	update.End()
	return float64(try.Of(tensor.ToSlice[float32](mean))[0])
}

// test returns the fraction of test images that the network reads correctly.
func (t *trainer) test() float64 {
	defer t.session.Event("test").End()
	test := t.session.Place().Scope()
	defer test.Close()
	p := test.Place

	every := tensor.Whole.By(5)
	images, labels := try.Of(t.images.Slice(every)), try.Of(t.labels.Slice(every))
	forward := t.session.Event("forward", engine.FLOPs(float64(images.Dim(0)*operations)))
	_, y := t.net.forward(p, prepare(p, images))
	forward.End()
	right := try.Of(compute.Equal(p, try.Of(compute.ArgMax(p, y, 1)), labels))
	count := try.Of(tensor.ToSlice[int64](try.Of(compute.Sum(p, right))))[0]
	return float64(count) / float64(labels.Len())
}

// prepare converts images, uint8[m pixels] from 0 to 16, to numbers from 0 to 1.
func prepare(p *tensor.Place, images *tensor.Tensor) *tensor.Tensor {
	x := try.Of(images.Cast(p, dtype.Float32))
	try.Check(compute.BinaryInto(p, x, backend.Div, x, 16))
	return x
}
