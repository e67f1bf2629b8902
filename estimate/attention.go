package estimate

// attend is the attention of a layer. It does not release x.
func (t *transformer) attend(i int, x *value) *value {
	query, key := dim{"query", t.Query, t.compute}, dim{"key", t.KeyValue, t.compute}
	var q, k, v *value
	if t.fusedQKV {
		all := dim{"query-key-value", t.Query + 2*t.KeyValue, t.compute}
		q = t.product(x, all, t.of(i, "qkv"))
		if t.torchMHA {
			q = t.then(operation{inputs: []*value{q}, out: all})
		}
	} else {
		q, k = t.product(x, query, t.of(i, "query")), t.product(x, key, t.of(i, "key"))
		v = t.product(x, key, t.of(i, "value"))
		if !t.learned {
			q, k = t.rotate(q), t.rotate(k)
		}
	}
	if t.cache != nil {
		k, v = t.cache.store(t, i, k, v)
	}
	out := t.scores(q, k, v)
	if t.torchMHA && t.compute == single { // the kernel's result is in another order
		out = t.then(operation{inputs: []*value{out}, out: out.dim})
	}
	y := t.thenProduct(out, dim{"hidden", t.Hidden, t.compute}, t.of(i, "attention"))
	t.release(q, k, v)
	return y
}

// rotate adds positions to queries or keys. The tables of sines are in the type of the residual stream.
func (t *transformer) rotate(x *value) *value {
	d := x.of(t.residual)
	n := t.bytes(d)
	y := t.then(operation{inputs: []*value{x}, out: d, scratch: []int64{n, n, n}, back: []int64{n, n}})
	if t.residual == t.compute {
		return y
	}
	return t.then(operation{inputs: []*value{y}, out: x.dim})
}

// scores computes attention from queries, keys and values; from queries alone if one product made all. It does not
// release them.
func (t *transformer) scores(q, k, v *value) *value {
	if k != nil && t.KeyValue < t.Query && (t.o.Kernels != Fused || t.residual == single || t.o.Attention == Eager) {
		wide := k.dim
		wide.width = k.width / t.KeyValue * t.Query
		k = t.run(operation{inputs: []*value{k}, out: wide})
		v = t.run(operation{inputs: []*value{v}, out: wide})
		defer t.release(k, v)
	}
	in, saves := []*value{q}, []bool{true}
	if k != nil {
		in, saves = append(in, k, v), append(saves, true, true)
	}
	out := dim{"query", t.Query, t.compute}
	if t.o.Attention == SDPA {
		sums := dim{"sums", t.Heads, single}
		back := []int64{t.bytes(sums)}
		if t.compute == half { // the kernel adds up the gradients of queries in single precision
			back = append(back, t.bytes(out.of(single)))
		}
		if k == nil { // gradients of queries, keys and values, which are then put together
			key := t.bytes(dim{"key", t.KeyValue, t.compute})
			back = append(back, t.bytes(out), key, key)
		}
		return t.run(operation{inputs: in, saves: saves, keeps: true, out: out, extra: []dim{sums}, back: back})
	}
	return t.eager(in, saves, out)
}

// eager computes attention in steps, with a score for each pair of tokens.
func (t *transformer) eager(in []*value, saves []bool, out dim) *value {
	pairs := dim{"scores", t.Heads * t.pairs(), t.compute}
	score := func(op operation) *value {
		op.out = pairs
		return t.then(op)
	}
	x := t.run(operation{inputs: in[:min(len(in), 2)], saves: saves, out: pairs})
	x = score(operation{inputs: []*value{x}}) // scaled
	x = score(operation{inputs: []*value{x}}) // masked
	if pairs.bytes == single {
		x = score(operation{inputs: []*value{x}, keeps: true})
	} else {
		wide := pairs.of(single)
		x = t.then(operation{inputs: []*value{x}, keeps: true, out: wide, scratch: []int64{t.bytes(wide)}})
		x = score(operation{inputs: []*value{x}})
	}
	weighted := []*value{x, in[len(in)-1]}
	y := t.run(operation{inputs: weighted, saves: []bool{true, true}, out: out})
	t.release(x)
	return t.then(operation{inputs: []*value{y}, out: out}) // contiguous
}

// pairs is the number of tokens that each token attends to.
func (t *transformer) pairs() int64 {
	if t.cache != nil {
		return t.cache.length
	}
	return t.o.Sequence
}
