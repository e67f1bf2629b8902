// Package workloads generates programs of allocations for replays, modelled on training and serving processes. Their
// sizes differ from step to step, unlike those of the recordings in testdata.
//
// A model of the process makes the program: it has weights, the optimizer's state, operations that save tensors for
// their gradients, and a backward pass that frees these in reverse order. Sizes follow from the shapes; only shapes,
// routes, samples and arrivals are random. Within an operation the order of requests is that of PyTorch in the
// recordings in testdata/traces. For example, the optimizer allocates temporaries for all weights and frees them in
// reverse order.
//
// The same seed makes the same program on machines of one architecture. Other architectures may round floating-point
// numbers differently. A program has 20,000 to 35,000 allocations and a requested peak of 2 to 14 GiB.
//
// Programs have no private pools and no requests that failed. trace.Program.Script converts them to scripts, as
// bench/workload does.
package workloads

import "github.com/ashlar-go/ashlar/trace"

// Structure:
//
//	process    requests tensors, counts their owners, and frees them (process.go)
//	network    weights, gradients, Adam (network.go)
//	tape       operations, and the steps of the backward pass (tape.go)

// A Workload is a kind of work.
type Workload struct {
	Name    string
	What    string // a short description
	Program func(seed uint64) *trace.Program
}

// All returns every workload, in the order of their names.
func All() []Workload {
	return []Workload{
		{"checkpoint", "training a transformer that recomputes its layers, of varying length", Checkpoint},
		{"decode", "batches of sequences, to whose caches each token is concatenated", Decode},
		{"gnn", "training a graph network on sampled neighbourhoods", GNN},
		{"moe", "training a transformer with experts", MoE},
		{"prefetch", "gnn, with batches that a second stream loads ahead", Prefetch},
		{"serving", "requests that come and go, whose caches grow by reallocation", Serving},
		{"serving-blocks", "requests that come and go, whose caches grow by blocks", ServingBlocks},
		{"sharded", "checkpoint, where a second stream gathers each layer's weights from several devices", Sharded},
	}
}
