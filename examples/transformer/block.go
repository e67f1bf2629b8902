package main

import (
	"math"
	"strconv"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// A block is a Llama block: RMS norm, causal attention with rotary positions, RMS norm, SwiGLU, with each half added to
// its input. Its methods panic with errors: see package try.
type block struct {
	heads         int
	eps           float64
	attentionNorm *tensor.Tensor // [width]
	q, k, v, out  *tensor.Tensor // [width width], as all matrices for columns: y = W x
	mlpNorm       *tensor.Tensor // [width]
	gate, up      *tensor.Tensor // [hidden width]
	down          *tensor.Tensor // [width hidden]
	cos, sin      *tensor.Tensor // [tokens width/heads/2], of the angles by which positions are rotated
}

// A cache holds the keys and values of the tokens so far, [heads tokens width/heads]. The zero cache has no tokens.
type cache struct{ k, v *tensor.Tensor }

// load loads a block at p with elements of type d.
func load(p *tensor.Place, f *safetensors.File, d dtype.DType) *block {
	meta := f.Metadata()
	w := func(name string) *tensor.Tensor { return loadAs(p, f, name, d) }
	return &block{
		heads:         try.Of(strconv.Atoi(meta["heads"])),
		eps:           try.Of(strconv.ParseFloat(meta["eps"], 64)),
		attentionNorm: w("attention_norm.weight"),
		q:             w("attention.q.weight"),
		k:             w("attention.k.weight"),
		v:             w("attention.v.weight"),
		out:           w("attention.out.weight"),
		mlpNorm:       w("mlp_norm.weight"),
		gate:          w("mlp.gate.weight"),
		up:            w("mlp.up.weight"),
		down:          w("mlp.down.weight"),
		cos:           w("rotary.cos"),
		sin:           w("rotary.sin"),
	}
}

// loadAs loads a tensor to p's device and converts it to type d there.
func loadAs(p *tensor.Place, f *safetensors.File, name string, d dtype.DType) *tensor.Tensor {
	s := p.Scope()
	defer s.Close()
	return s.Keep(try.Of(try.Of(f.Load(s.Place, name)).Cast(s.Place, d)))
}

// forward returns the output of the block for x, [n width], the tokens after those of the cache, and adds them to the
// cache. The cache's tensors are made at keep, and all others at p.
func (b *block) forward(p, keep *tensor.Place, x *tensor.Tensor, past *cache) *tensor.Tensor {
	h := try.Of(compute.RMSNorm(p, x, b.attentionNorm, b.eps))
	x = try.Of(compute.Add(p, x, b.attention(p, keep, h, past)))
	h = try.Of(compute.RMSNorm(p, x, b.mlpNorm, b.eps))
	return try.Of(compute.Add(p, x, b.mlp(p, h)))
}

// attention returns out(softmax(q k / √d) v), head by head. Each token sees itself and the tokens before it.
func (b *block) attention(p, keep *tensor.Place, x *tensor.Tensor, past *cache) *tensor.Tensor {
	n, width := x.Dim(0), x.Dim(1)
	before := past.tokens()
	q, k, v := b.split(linear(p, x, b.q)), b.split(linear(p, x, b.k)), b.split(linear(p, x, b.v))
	q, k = b.rotate(p, q, before), b.rotate(p, k, before)
	past.append(keep, k, v)

	scores := try.Of(compute.MatMul(p, q, try.Of(past.k.MT())))
	scores = try.Of(compute.Div(p, scores, math.Sqrt(float64(width/b.heads))))
	if n > 1 {
		all := before + n
		rows := try.Of(compute.Arange(p, dtype.Int64, before, all, 1))
		columns := try.Of(compute.Arange(p, dtype.Int64, 0, all, 1))
		seen := try.Of(compute.GreaterEqual(p, try.Of(rows.Unsqueeze(1)), columns))
		scores = try.Of(compute.Where(p, seen, scores, math.Inf(-1)))
	}
	attended := try.Of(compute.MatMul(p, try.Of(compute.Softmax(p, scores, -1)), past.v)) // [heads n width/heads]
	side := try.Of(try.Of(attended.Transpose(0, 1)).Contiguous(p))
	return linear(p, try.Of(side.Reshape(n, width)), b.out)
}

// mlp returns down(silu(gate(x)) · up(x)).
func (b *block) mlp(p *tensor.Place, x *tensor.Tensor) *tensor.Tensor {
	gate := try.Of(compute.Silu(p, linear(p, x, b.gate)))
	return linear(p, try.Of(compute.Mul(p, gate, linear(p, x, b.up))), b.down)
}

// split returns a view of x, [n width], as [heads n width/heads].
func (b *block) split(x *tensor.Tensor) *tensor.Tensor {
	return try.Of(try.Of(x.Reshape(x.Dim(0), b.heads, -1)).Transpose(0, 1))
}

// rotate rotates the vectors of tokens, [heads n d], by the angles of their positions; first is the position of the
// first. The two coordinates of a rotated point are half a vector apart.
func (b *block) rotate(p *tensor.Place, x *tensor.Tensor, first int) *tensor.Tensor {
	halves := try.Of(x.Chunk(2, 2))
	cos, sin := try.Of(b.cos.Narrow(0, first, x.Dim(1))), try.Of(b.sin.Narrow(0, first, x.Dim(1)))
	times := func(x, y *tensor.Tensor) *tensor.Tensor { return try.Of(compute.Mul(p, x, y)) }
	return try.Of(compute.Concat(p, 2,
		try.Of(compute.Sub(p, times(halves[0], cos), times(halves[1], sin))),
		try.Of(compute.Add(p, times(halves[1], cos), times(halves[0], sin)))))
}

func linear(p *tensor.Place, x, w *tensor.Tensor) *tensor.Tensor {
	return try.Of(compute.MatMul(p, x, w.T()))
}

func (c *cache) tokens() int {
	if c.k == nil {
		return 0
	}
	return c.k.Dim(1)
}

// append replaces the cache by a larger one, made at p.
func (c *cache) append(p *tensor.Place, k, v *tensor.Tensor) {
	c.k, c.v = grown(p, c.k, k), grown(p, c.v, v)
}

func grown(p *tensor.Place, old, more *tensor.Tensor) *tensor.Tensor {
	if old == nil {
		return try.Of(more.Clone(p))
	}
	defer old.Release()
	return try.Of(compute.Concat(p, 1, old, more))
}
