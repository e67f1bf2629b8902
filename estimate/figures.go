package estimate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// formula returns the formula of a category whose maximum is a number of bytes.
func (t *transformer) formula(c Category, bytes int64, o *Optimizer) Formula {
	var f Formula
	switch c {
	case Weights, Gradients:
		f = product(Factor{t.Parameters, "parameter"}, Factor{t.o.DType.bytes(), "bytes"})
	case OptimizerState:
		if o.States > 0 {
			f = product(Factor{o.States, "state"}, Factor{t.Parameters, "parameter"},
				Factor{t.o.DType.bytes(), "bytes"})
		}
	case Activations:
		f = t.activationFormula()
	case Logits:
		tokens := Factor{t.tokens, "token"}
		row := t.Vocabulary * t.compute
		if t.o.Train && t.o.Kernels == Transformers || t.amp {
			row = t.Vocabulary * single
		}
		if n := bytes / max(1, t.tokens*row); n > 0 {
			f = product(Factor{n, "tensor"}, tokens, Factor{t.Vocabulary, "words"},
				Factor{row / t.Vocabulary, "bytes"})
		}
	case KVCache:
		f = t.cacheFormula()
	case Workspace:
		f = product(Factor{bytes / t.o.Workspace, "thread"}, Factor{t.o.Workspace, "bytes"})
	case Inputs:
		f = product(Factor{bytes / token, "token"}, Factor{token, "bytes"})
	}
	rest := restOf[c]
	if c == Activations && !t.o.Train {
		rest = "while one layer runs"
	}
	return f.plus(bytes-f.Bytes(), rest)
}

// restOf says where the memory that a formula does not have comes from.
var restOf = [NumCategories]string{
	Weights:             "as they are in the checkpoint",
	Gradients:           "while two gradients of a weight are added",
	OptimizerState:      "of counters and factors",
	Activations:         "outside the layers",
	Logits:              "in other types",
	WeightCasts:         "of weights of products in half precision",
	KVCache:             "while a layer's cache grows",
	ActivationGradients: "of gradients between two layers",
	Temporaries:         "during one operation",
}

// activationFormula is the memory that the layers keep for the backward pass.
func (t *transformer) activationFormula() Formula {
	if t.keptDims == nil {
		return nil
	}
	bytes := int64(0)
	for _, k := range t.keptDims {
		bytes += k.n * k.dim.width * k.dim.bytes
	}
	tokens := Factor{t.o.Batch * t.o.Sequence, "token"}
	if layers := int64(t.Layers); bytes%layers == 0 {
		return product(Factor{layers, "layer"}, tokens, Factor{bytes / layers, "bytes"})
	}
	return product(tokens, Factor{bytes, "bytes"})
}

// keptDetail is the formula of the bytes that a layer keeps for each token: the sum of its tensors.
func (t *transformer) keptDetail() string {
	layers, bytes := int64(t.Layers), int64(0)
	for _, k := range t.keptDims {
		if k.n%layers != 0 {
			layers = 1
		}
	}
	var parts []string
	for _, k := range t.keptDims {
		n := k.n / layers
		bytes += n * k.dim.width * k.dim.bytes
		parts = append(parts, fmt.Sprintf("%d %s × %s × %d", n, k.dim.name, grouped(k.dim.width), k.dim.bytes))
	}
	return fmt.Sprintf("%s = %s", grouped(bytes), strings.Join(parts, " + "))
}

// A keptDim is a number of tensors with the same dimensions that are kept.
type keptDim struct {
	dim dim
	n   int64
}

// noteKept counts the tensors that the layers keep, after the forward pass.
func (t *transformer) noteKept() {
	count := map[dim]int64{}
	for k := range t.kept {
		if k.owners > 0 {
			count[k.dim]++
		}
	}
	for d, n := range count {
		t.keptDims = append(t.keptDims, keptDim{d, n})
	}
	slices.SortFunc(t.keptDims, func(a, b keptDim) int {
		return cmp.Or(cmp.Compare(b.n*b.dim.width*b.dim.bytes, a.n*a.dim.width*a.dim.bytes),
			cmp.Compare(a.dim.name, b.dim.name), cmp.Compare(a.dim.bytes, b.dim.bytes))
	})
}

func (t *transformer) cacheFormula() Formula {
	n := t.o.Cache.tokens(t.o.Sequence + t.o.New)
	return product(Factor{2, ""}, Factor{int64(t.Layers), "layer"}, Factor{t.o.Batch, "sequence"},
		Factor{n, "token"}, Factor{t.KeyValue, "elements"}, Factor{t.compute, "bytes"})
}
