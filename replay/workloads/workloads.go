// Package workloads makes programs of allocations as training and serving processes would ask for them, for replays on
// allocators: work whose sizes no two steps share, which no recording in testdata has.
//
// A program is made by a model of the process, not drawn from distributions: weights, the optimizer's state, operations
// that save what their gradients need, a backward pass that frees it in reverse. Sizes are those that the shapes give; only
// shapes, routes, samples and arrivals are random. The order of requests within an operation is PyTorch's as far as the
// recordings in testdata/traces show it: the optimizer's temporaries come for all weights and go in reverse, for one.
//
//	process    asks for tensors, counts their owners, frees them (process.go)
//	network    weights, gradients, Adam (network.go)
//	tape       operations, and what is to be done in the backward pass (tape.go, block.go)
//
// The same seed makes the same program, on machines of one architecture: others may round floating-point numbers otherwise.
// A program has 20,000 to 35,000 allocations and a requested peak of 2 to 14 GiB.
//
// # What it does not do
//
// It makes no private pools, no requests that fail, and no addresses: replay its programs, or write them down as scripts
// (trace.Program.Script; bench/workload does).
package workloads

import "github.com/ashlar-go/ashlar/trace"

// A Workload is a kind of work.
type Workload struct {
	Name    string
	What    string // in half a sentence
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
