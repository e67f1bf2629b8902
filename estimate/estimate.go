// Package estimate tells how much memory a model will need before it runs: in training or in inference under PyTorch,
// from the header of its checkpoint and a few numbers.
//
//	checkpoint, err := safetensors.OpenCheckpoint("model/", safetensors.Options{})
//	...
//	e, err := estimate.New(estimate.Tensors(checkpoint), estimate.Config{}, estimate.Options{
//		Train: true, Batch: 8, Sequence: 1024, DType: estimate.BF16, Optimizer: "adamw",
//	})
//	fmt.Println(e.Peak, e.Figures[estimate.Activations].Formula)
//
// An Estimate has a figure with its formula for each use of memory, the peak of requested memory with its parts, and a
// program of the requests, which package replay runs on any allocator: [Estimate.Reserved], [Estimate.Fits].
//
// # What is modelled
//
// The requests are those of PyTorch 2.11 for a decoder or encoder whose tensors have the names of Hugging Face's
// models, of GPT-2's, of Llama's, or of nn.TransformerEncoder. Of other models, weights, gradients, optimizer states
// and the optimizer's step are estimated, and activations are not (Model.Layers is 0). Memory outside PyTorch's
// allocator, such as the CUDA context, is not part of an estimate.
//
// Sizes are bytes. Functions may be called from several goroutines at once.
package estimate

// model.go finds the structure of a model. transformer.go and attention.go run its layers on a graph (graph.go), which
// records the requests as a trace.Program, and which frees memory as PyTorch's autograd and reference counts do.
// training.go, inference.go, cache.go and optimizer.go run the rest. usage.go adds up. Formulas (formula.go) are
// derived from the same shapes, and a test compares them with the program.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
	"github.com/ashlar-go/ashlar/trace"
)

// A DType is the type of weights and activations.
type DType string

// The types. AMP is torch.autocast with weights in single precision and products in half precision.
const (
	FP32 DType = "fp32"
	BF16 DType = "bf16"
	FP16 DType = "fp16"
	AMP  DType = "amp"
)

// bytes is the size of an element of a weight.
func (d DType) bytes() int64 {
	if d == BF16 || d == FP16 {
		return half
	}
	return single
}

// An Attention is an implementation of attention.
type Attention string

// The implementations. SDPA is scaled_dot_product_attention with a kernel that stores no scores; Eager stores a score
// for each pair of tokens.
const (
	SDPA  Attention = "sdpa"
	Eager Attention = "eager"
)

// Kernels says how norms, activations and the loss are computed.
type Kernels string

// The kernels. Transformers computes RMSNorm and GPT-2's GELU in several steps, repeats keys and values for each query
// head, and computes the loss in single precision, as Hugging Face's library does. Fused uses one kernel for each.
const (
	Transformers Kernels = "transformers"
	Fused        Kernels = "fused"
)

// A CacheKind is a way to store keys and values during generation.
type CacheKind string

// The kinds. A dynamic cache grows with each token by concatenation; a static one has its final size from the start;
// one of blocks likewise, in blocks of 16 tokens.
const (
	DynamicCache CacheKind = "dynamic"
	StaticCache  CacheKind = "static"
	BlockCache   CacheKind = "blocks"
)

// Options describe the run. Zero values of Batch, Sequence, Accumulate and the types have the defaults that are named.
type Options struct {
	Train      bool      // false: inference
	Batch      int64     // sequences at a time; 1
	Sequence   int64     // tokens of each, of the prompt in inference; 1024
	DType      DType     // FP32
	Attention  Attention // SDPA
	Kernels    Kernels   // Transformers
	Optimizer  string    // see Optimizers; "adamw"
	Checkpoint bool      // activation checkpointing of each layer
	Accumulate int64     // backward passes of each optimizer step; 1
	Dropout    float64   // probability; 0 is none
	NewGELU    bool      // the activation is "gelu_new", which Transformers computes in steps
	DropLogits bool      // the program frees the logits before the backward pass, as transformers' Trainer does
	New        int64     // tokens to generate, in inference
	Cache      CacheKind // DynamicCache
	AllLogits  bool      // logits of all tokens of the prompt, not of the last one alone
	Workspace  int64     // of cuBLAS for each thread, in bytes; 32 MiB, as on Hopper. Other GPUs have 8320 KiB.
}

// A Figure is the memory of one category.
type Figure struct {
	Category Category
	Bytes    int64   // the most that it has at a time
	AtPeak   int64   // what it has at the peak of all
	Formula  Formula // of Bytes; nil if Bytes is 0
	Detail   string  // of activations: the bytes of a layer and token, as the sum of its tensors; otherwise empty
}

// An Estimate is the memory that a run will request.
type Estimate struct {
	Model   *Model
	Options Options  // with defaults
	Figures []Figure // by Category
	Phases  []Phase
	Peak    Phase // that of Phases with the highest peak
	Program *trace.Program
}

// The limits of the numbers in Options: MaxAccumulate of Accumulate, and MaxLength of the others.
const (
	MaxLength     = 1 << 30
	MaxAccumulate = 1024
)

// maxLayers is the limit of a model's layers, and maxMemory the largest device that can be simulated.
const (
	maxLayers = 10_000
	maxMemory = 1 << 55
)

// Tensors describes the tensors of a checkpoint.
func Tensors(c safetensors.Checkpoint) []Tensor {
	var all []Tensor
	for _, name := range c.Names() {
		info, _ := c.Info(name)
		floats := slices.Contains([]string{"F64", "F32", "F16", "BF16"}, info.Type)
		all = append(all, Tensor{Name: name, Shape: info.Shape, Size: info.Size, Float: floats})
	}
	return all
}

// TypeOf is the type that most of a checkpoint's bytes have: FP32, BF16 or FP16. Of a quantized checkpoint it is BF16,
// the type of activations.
func TypeOf(c safetensors.Checkpoint) DType {
	sizes := map[string]int64{}
	most := ""
	for _, name := range c.Names() {
		info, _ := c.Info(name)
		if sizes[info.Type] += info.Size; sizes[info.Type] > sizes[most] {
			most = info.Type
		}
	}
	switch most {
	case "F32", "F64", "":
		return FP32
	case "F16":
		return FP16
	}
	return BF16
}

// New estimates the memory of a run. The error says which option is invalid, or that the run is too large to describe.
func New(tensors []Tensor, c Config, o Options) (*Estimate, error) {
	return NewModel(tensors, c).Estimate(o)
}

// Estimate estimates the memory of a run of m. The errors are those of New.
func (m *Model) Estimate(o Options) (*Estimate, error) {
	o.setDefaults()
	optimizer, err := o.check(m)
	if err != nil {
		return nil, fmt.Errorf("estimate: %w", err)
	}
	g := newGraph(o.Batch * o.Sequence)
	t := newTransformer(g, m, &o)
	if o.Train {
		t.train(&optimizer)
	} else {
		t.infer()
	}
	e := &Estimate{Model: m, Options: o, Phases: g.usage.phases, Peak: g.usage.peak(), Program: g.program}
	for c := range NumCategories {
		f := Figure{Category: c, Bytes: g.usage.most[c], AtPeak: e.Peak.AtPeak[c]}
		if f.Bytes > 0 {
			f.Formula = t.formula(c, f.Bytes, &optimizer)
		}
		if c == Activations && t.keptDims != nil {
			f.Detail = t.keptDetail()
		}
		e.Figures = append(e.Figures, f)
	}
	return e, nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

func (o *Options) setDefaults() {
	setDefault(&o.Batch, 1)
	setDefault(&o.Sequence, 1024)
	setDefault(&o.DType, FP32)
	setDefault(&o.Attention, SDPA)
	setDefault(&o.Kernels, Transformers)
	setDefault(&o.Optimizer, "adamw")
	setDefault(&o.Accumulate, 1)
	setDefault(&o.Cache, DynamicCache)
	setDefault(&o.Workspace, 32<<20)
}

// check checks the options, and returns the optimizer.
func (o *Options) check(m *Model) (Optimizer, error) {
	optimizer, known := optimizerOf(o.Optimizer)
	switch {
	case !known:
		return optimizer, fmt.Errorf("optimizer %q: want one of %s", o.Optimizer, strings.Join(Optimizers(), ", "))
	case m.Parameters == 0 && (o.Train || m.Other == 0):
		return optimizer, errors.New("the checkpoint has no weights of floating-point numbers")
	case m.Layers > maxLayers:
		return optimizer, fmt.Errorf("%d layers: at most %d", m.Layers, maxLayers)
	case m.Parameters > maxMemory/16:
		return optimizer, fmt.Errorf("%d parameters: at most %d", m.Parameters, int64(maxMemory/16))
	}
	for _, n := range []struct {
		name string
		n    int64
		low  int64
		high int64
	}{
		{"batch", o.Batch, 1, MaxLength},
		{"sequence", o.Sequence, 1, MaxLength},
		{"accumulate", o.Accumulate, 1, MaxAccumulate},
		{"new tokens", o.New, 0, MaxLength},
		{"workspace", o.Workspace, 0, MaxLength},
	} {
		if n.n < n.low || n.n > n.high {
			return optimizer, fmt.Errorf("%s %d: want %d to %d", n.name, n.n, n.low, n.high)
		}
	}
	if !(o.Dropout >= 0 && o.Dropout <= 1) {
		return optimizer, fmt.Errorf("dropout %v: want 0 to 1", o.Dropout)
	}
	// An upper bound of the bytes of all tensors that depend on tokens.
	width := float64(m.Hidden + m.Query + m.KeyValue + m.MLP*max(1, m.TopK) + m.Heads*(o.Sequence+o.New))
	width *= 64 * float64(m.Layers)
	if float64(o.Batch)*float64(o.Sequence+o.New)*(width+64*float64(m.Vocabulary)) > math.MaxInt64/64 {
		return optimizer, fmt.Errorf("batch %d of %d tokens: too much memory to describe", o.Batch, o.Sequence+o.New)
	}
	return optimizer, nil
}

// Allocators are the allocators to compare: PyTorch's by default and with expandable segments, and package mem/paged.
var Allocators = []string{"caching:", "caching:expandable_segments:True", "paged"}

// Reserved runs the program on an allocator, as package replay names it, on a simulated device that is large enough. It
// returns the peak of reserved memory in bytes. The errors are those of replay.Compare.
func (e *Estimate) Reserved(allocator string) (int64, error) {
	row, err := e.replay(allocator, 0)
	return row.ReservedPeak, err
}

// Fits reports whether the run has enough memory if an allocator, as package replay names it, may reserve at most limit
// bytes. The errors are those of replay.Compare.
func (e *Estimate) Fits(allocator string, limit int64) (bool, error) {
	if e.Peak.Peak > limit {
		return false, nil
	}
	row, err := e.replay(allocator, limit)
	return row.Completed(), err
}

func (e *Estimate) replay(allocator string, limit int64) (replay.Row, error) {
	c, err := replay.Compare(&replay.Work{Program: e.Program, Script: true, Recorded: caching.Default()},
		replay.CompareOptions{
			Specs: []string{allocator}, Limit: limit,
			Capacity: min(max(replay.H200Memory, 4*e.Peak.Peak, limit), maxMemory),
		})
	if err != nil {
		return replay.Row{}, err
	}
	return c.Rows[0], nil
}

// LargestBatch returns the largest batch for which a run of m fits in limit bytes under an allocator, or 0 if not even
// one sequence does. o.Batch has no effect. The errors are those of New and Fits.
func (m *Model) LargestBatch(o Options, allocator string, limit int64) (int64, error) {
	fits := func(batch int64) (bool, error) {
		o.Batch = batch
		e, err := m.Estimate(o)
		if err != nil {
			return false, err
		}
		return e.Fits(allocator, limit)
	}
	if ok, err := fits(1); !ok {
		return 0, err
	}
	low, high := int64(1), int64(2) // low fits
	for ; high < MaxLength; high *= 2 {
		ok, err := fits(high)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low = high
	}
	for low+1 < high {
		middle := low + (high-low)/2
		ok, err := fits(middle)
		switch {
		case err != nil:
			return 0, err
		case ok:
			low = middle
		default:
			high = middle
		}
	}
	return low, nil
}
