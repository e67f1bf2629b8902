package main

import (
	"math"
	"strconv"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// A block is that of Llama: RMS norm, causal attention with rotary positions, RMS norm, SwiGLU, each half added to its input.
// What fails in its methods ends in the catch of their caller: see try.
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

// A cache is the keys and values of the tokens so far, [heads tokens width/heads]. The zero cache is that of none.
type cache struct{ k, v *tensor.Tensor }

// load loads a block at p, with numbers of type d.
func load(p *tensor.Place, f *safetensors.File, d dtype.DType) *block {
	meta := f.Metadata()
	w := func(name string) *tensor.Tensor { return loadAs(p, f, name, d) }
	return &block{
		heads:         try(strconv.Atoi(meta["heads"])),
		eps:           try(strconv.ParseFloat(meta["eps"], 64)),
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

// loadAs loads a tensor to p's device, and makes it one of type d there.
func loadAs(p *tensor.Place, f *safetensors.File, name string, d dtype.DType) *tensor.Tensor {
	s := p.Scope()
	defer s.Close()
	return s.Keep(try(try(f.Load(s.Place, name)).Cast(s.Place, d)))
}

// forward returns what the block makes of x, [n width], the tokens after those of the cache, which then has them, too. The cache's
// tensors are made at keep, and everything else at p.
func (b *block) forward(p, keep *tensor.Place, x *tensor.Tensor, past *cache) *tensor.Tensor {
	h := try(compute.RMSNorm(p, x, b.attentionNorm, b.eps))
	x = try(compute.Add(p, x, b.attention(p, keep, h, past)))
	h = try(compute.RMSNorm(p, x, b.mlpNorm, b.eps))
	return try(compute.Add(p, x, b.mlp(p, h)))
}

// attention returns out(softmax(q k / √d) v), head by head, where each token sees itself and those before it.
func (b *block) attention(p, keep *tensor.Place, x *tensor.Tensor, past *cache) *tensor.Tensor {
	n, width := x.Dim(0), x.Dim(1)
	before := past.tokens()
	q, k, v := b.split(linear(p, x, b.q)), b.split(linear(p, x, b.k)), b.split(linear(p, x, b.v))
	q, k = b.rotate(p, q, before), b.rotate(p, k, before)
	past.append(keep, k, v)

	scores := try(compute.MatMul(p, q, try(past.k.MT())))
	scores = try(compute.Div(p, scores, math.Sqrt(float64(width/b.heads))))
	if n > 1 {
		all := before + n
		rows := try(compute.Arange(p, dtype.Int64, before, all, 1))
		columns := try(compute.Arange(p, dtype.Int64, 0, all, 1))
		seen := try(compute.GreaterEqual(p, try(rows.Unsqueeze(1)), columns))
		scores = try(compute.Where(p, seen, scores, math.Inf(-1)))
	}
	attended := try(compute.MatMul(p, try(compute.Softmax(p, scores, -1)), past.v)) // [heads n width/heads]
	side := try(try(attended.Transpose(0, 1)).Contiguous(p))
	return linear(p, try(side.Reshape(n, width)), b.out)
}

// mlp returns down(silu(gate(x)) · up(x)).
func (b *block) mlp(p *tensor.Place, x *tensor.Tensor) *tensor.Tensor {
	gate := try(compute.Silu(p, linear(p, x, b.gate)))
	return linear(p, try(compute.Mul(p, gate, linear(p, x, b.up))), b.down)
}

// split returns a view of x, [n width], as [heads n width/heads].
func (b *block) split(x *tensor.Tensor) *tensor.Tensor {
	return try(try(x.Reshape(x.Dim(0), b.heads, -1)).Transpose(0, 1))
}

// rotate turns the vectors of tokens, [heads n d], by the angles of their positions, of which first is that of the first. The
// two numbers that make a point of the plane lie half a vector apart.
func (b *block) rotate(p *tensor.Place, x *tensor.Tensor, first int) *tensor.Tensor {
	halves := try(x.Chunk(2, 2))
	cos, sin := try(b.cos.Narrow(0, first, x.Dim(1))), try(b.sin.Narrow(0, first, x.Dim(1)))
	times := func(x, y *tensor.Tensor) *tensor.Tensor { return try(compute.Mul(p, x, y)) }
	return try(compute.Concat(p, 2,
		try(compute.Sub(p, times(halves[0], cos), times(halves[1], sin))),
		try(compute.Add(p, times(halves[1], cos), times(halves[0], sin)))))
}

func linear(p *tensor.Place, x, w *tensor.Tensor) *tensor.Tensor {
	return try(compute.MatMul(p, x, w.T()))
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
		return try(more.Clone(p))
	}
	defer old.Release()
	return try(compute.Concat(p, 1, old, more))
}
