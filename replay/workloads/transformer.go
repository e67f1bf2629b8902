package workloads

// A transformer holds the weights of a transformer: layers of width d. Some layers have experts instead of one wide
// pair of products.
type transformer struct {
	network
	d, heads, vocabulary int64
	embedding, head      weight
	last                 norm
	layers               []layer
}

type layer struct {
	first, second norm
	qkv, out      linear
	up, down      linear
	gate          linear   // of experts
	experts       []expert // nil: up and down
	unit          unit     // the whole layer, if several devices share it
}

type norm struct{ scale, shift weight }

type linear struct {
	w, bias weight
	in, out int64
}

type expert struct{ up, down linear }

func (n *network) linear(in, out int64) linear {
	return linear{w: n.weight(in * out), bias: n.weight(out), in: in, out: out}
}

func (n *network) norm(d int64) norm { return norm{n.weight(d), n.weight(d)} }

// newTransformer makes a transformer. Layers for which experts returns zero are plain. With several devices, each holds
// a part of every layer.
func newTransformer(
	p *process, d, heads, vocabulary, devices int64, layers int, experts func(layer int) (n, width int64),
) *transformer {
	m := &transformer{network: network{p: p}, d: d, heads: heads, vocabulary: vocabulary}
	m.embedding = m.weight(vocabulary * d)
	for i := range layers {
		from := len(m.elements)
		m.sharded = devices > 1
		l := layer{first: m.norm(d), qkv: m.linear(d, 3*d), out: m.linear(d, d), second: m.norm(d)}
		if n, width := experts(i); n > 0 {
			l.gate = m.linear(d, n)
			for range n {
				l.experts = append(l.experts, expert{m.linear(d, width), m.linear(width, d)})
			}
		} else {
			l.up, l.down = m.linear(d, 4*d), m.linear(4*d, d)
		}
		if m.sharded {
			l.unit = m.unit(from, devices)
		}
		m.layers = append(m.layers, l)
	}
	m.last = m.norm(d)
	m.head = m.embedding // shared weights
	return m
}

// embed looks up the embeddings of tokens. The result is in single precision, as is the residual stream under autocast.
func (m *transformer) embed(t *tape, tokens int64) {
	t.now, t.size = m.p.empty(tokens*m.d*single), tokens*m.d*single
	t.later(func(grad tensor) tensor {
		m.p.scratch(tokens*integer, tokens*integer) // indices, sorted
		m.arrive(m.embedding, false)
		m.p.drop(grad)
		return 0
	})
}

func (m *transformer) normalize(t *tape, n norm, tokens int64) {
	t.do(op{
		out: tokens * m.d * single, extra: []int64{tokens * single, tokens * single}, savesInput: true,
		weights: []weight{n.scale, n.shift}, backward: []int64{256 * m.d * single},
	})
}

// product is a linear layer in half precision. Its input is cast to half precision.
func (m *transformer) product(t *tape, l linear, tokens int64) {
	if t.size == tokens*l.in*single {
		t.do(op{out: tokens * l.in * half})
	}
	t.do(op{out: tokens * l.out * half, savesInput: true, weights: []weight{l.w, l.bias}, casts: true})
}

// attend is the first branch of a layer. Attention saves its result and a number for each row (flash attention).
func (m *transformer) attend(t *tape, l *layer, tokens int64) {
	t.fork()
	m.normalize(t, l.first, tokens)
	m.product(t, l.qkv, tokens)
	t.do(op{
		out: tokens * m.d * half, extra: []int64{tokens * m.heads * single, 16}, savesInput: true, savesOut: true,
		backward: []int64{tokens * m.heads * single, tokens * m.d * single}, // sums; gradients of queries
	})
	m.product(t, l.out, tokens)
	m.dropout(t, tokens)
	t.join()
}

func (m *transformer) dropout(t *tape, tokens int64) {
	t.do(op{out: tokens * m.d * half, extra: []int64{tokens * m.d * mask}})
}

// think is the second branch of a plain layer.
func (m *transformer) think(t *tape, l *layer, tokens int64) {
	t.fork()
	m.normalize(t, l.second, tokens)
	m.product(t, l.up, tokens)
	t.do(op{out: tokens * 4 * m.d * half, savesInput: true})
	m.product(t, l.down, tokens)
	m.dropout(t, tokens)
	t.join()
}

// learn runs the end of a step: logits, loss and the backward pass.
func (m *transformer) learn(t *tape, tokens int64) {
	p, v := m.p, m.vocabulary
	m.normalize(t, m.last, tokens)
	t.do(op{out: tokens * m.d * half})
	t.do(op{out: tokens * v * half, savesInput: true, weights: []weight{m.head}, casts: true})
	// the loss is in single precision
	t.do(op{out: tokens * v * single})
	t.do(op{out: tokens * v * single, savesOut: true})                                    // log_softmax
	t.do(op{out: single, extra: []int64{single}, backward: []int64{tokens * v * single}}) // nll_loss
	loss := p.share(t.now)
	p.drop(t.now)
	t.now = 0
	p.drop(t.backward(p.empty(single)))
	p.drop(loss)
}
