package estimate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/estimate"
)

// pick draws one of some values.
func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomTensors are tensors with known names, some of them missing, of shapes that may contradict each other.
func randomTensors(r *rand.Rand) []estimate.Tensor {
	names := []string{
		"wte.weight", "wpe.weight", "lm_head.weight", "norm.weight", "running_mean", "h.0.attn.bias",
		"h.%d.ln_1.weight", "h.%d.ln_1.bias", "h.%d.ln_2.weight", "h.%d.q_proj.weight", "h.%d.k_proj.weight",
		"h.%d.v_proj.weight", "h.%d.o_proj.weight", "h.%d.c_attn.weight", "h.%d.in_proj_weight",
		"h.%d.gate_proj.weight", "h.%d.up_proj.weight", "h.%d.gate_up_proj.weight", "h.%d.down_proj.weight",
		"h.%d.experts.0.w1.weight", "h.%d.experts.1.w3.weight", "h.%d.q_norm.weight", "h.%d.other",
	}
	lengths := []int{8, 8, 8, 16, 24, 32, 0, 1}
	var all []estimate.Tensor
	for _, name := range names {
		if r.IntN(5) == 0 {
			continue
		}
		shape := []int{pick(r, lengths...), 8}
		if strings.Contains(name, "norm") || strings.Contains(name, "ln_") {
			shape = shape[1:]
		}
		if r.IntN(20) == 0 {
			shape = []int{2, pick(r, lengths...), 2, 3}[r.IntN(4):]
		}
		x := estimate.Tensor{Shape: shape, Size: 4, Float: r.IntN(10) > 0}
		for _, n := range shape {
			x.Size *= int64(n)
		}
		for layer := range 1 + r.IntN(3) {
			x.Name = name
			if slices.Contains([]byte(name), '%') {
				x.Name = fmt.Sprintf(name, layer)
			} else if layer > 0 {
				break
			}
			all = append(all, x)
		}
	}
	return all
}

// Whatever a checkpoint contains, an estimate is consistent: the figures add up, the formulas give them, all memory but
// that of the model, its states and the caches is freed in the end, and allocators can serve the program.
func TestRandomModels(t *testing.T) {
	recognized := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := randomTensors(r)
		o := estimate.Options{
			Train: r.IntN(3) > 0, Batch: 1 + r.Int64N(3), Sequence: 1 + r.Int64N(20), New: r.Int64N(6),
			DType:     pick(r, estimate.FP32, estimate.BF16, estimate.FP16, estimate.AMP),
			Attention: pick(r, estimate.SDPA, estimate.Eager), Kernels: pick(r, estimate.Fused, estimate.Transformers),
			Optimizer: pick(r, estimate.Optimizers()...), Checkpoint: r.IntN(3) == 0, Accumulate: 1 + r.Int64N(3),
			Dropout: pick(r, 0, 0.1), NewGELU: r.IntN(2) == 0, DropLogits: r.IntN(2) == 0, AllLogits: r.IntN(2) == 0,
			Cache: pick(r, estimate.DynamicCache, estimate.StaticCache, estimate.BlockCache),
		}
		m := estimate.NewModel(all, estimate.Config{Heads: r.Int64N(3), TopK: r.Int64N(3)})
		e, err := m.Estimate(o)
		if err != nil {
			if m.Parameters+m.Other > 0 {
				t.Errorf("seed %d: %v", seed, err)
			}
			continue
		}
		if m.Layers > 0 {
			recognized++
		}
		sum := int64(0)
		for _, f := range e.Figures {
			sum += f.AtPeak
			if f.Formula.Bytes() != f.Bytes {
				t.Errorf("seed %d: %s: %d bytes, by the formula %s", seed, f.Category, f.Bytes, f.Formula)
			}
		}
		stats := e.Program.Stats()
		if err := e.Program.Check(); err != nil || sum != e.Peak.Peak || stats.PeakBytes != sum {
			t.Errorf("seed %d: %v; the figures add up to %d, the peak is %d, that of the program %d", seed, err, sum,
				e.Peak.Peak, stats.PeakBytes)
		}
		held := int64(0)
		for _, c := range []estimate.Category{
			estimate.Weights, estimate.OptimizerState, estimate.KVCache, estimate.Workspace,
		} {
			held += e.Figures[c].Bytes
		}
		if live := stats.LiveBytes; live > held || o.Train && live != held {
			t.Errorf("seed %d: %d bytes are live at the end, and %d are kept: %+v", seed, live, held, o)
		}
		if seed%20 == 0 {
			if n, err := e.Reserved("caching:"); err != nil || n < e.Peak.Peak {
				t.Errorf("seed %d: %d reserved for a peak of %d, %v", seed, n, e.Peak.Peak, err)
			}
		}
	}
	if recognized < 100 {
		t.Errorf("%d models were recognized as transformers", recognized)
	}
}
