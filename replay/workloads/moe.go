package workloads

import (
	"math"

	"github.com/ashlar-go/ashlar/trace"
)

// MoE is the training of a transformer with experts, 8 to 64 in every second layer (64 in every fourth), in mixed
// precision. Each token goes to two experts. Some experts get more tokens than others; the preferences differ between
// layers and change slowly. The capacity of an expert varies from step to step, and some steps have no limit.
func MoE(seed uint64) *trace.Program {
	p := newProcess(seed, 1)
	n := pick(p, int64(8), 16, 32, 64)
	m := newTransformer(p, 768, 12, 32000, 1, 8, func(layer int) (int64, int64) {
		if layer%2 == 0 || n == 64 && layer%4 == 1 {
			return 0, 0
		}
		return n, 24576 / n
	})
	liking := make([][]float64, len(m.layers))
	for i := range liking {
		liking[i] = make([]float64, n)
		for e := range liking[i] {
			liking[i][e] = 0.7 * p.rng.NormFloat64()
		}
	}
	for p.allocations() < 28000 {
		length := 32 * (p.between(128, 1024) / 32)
		tokens := length * max(1, p.near(12000, 0.4)/length)
		capacity := pick(p, 0, 1, 1.25, 1.5, 2.0)
		ids, targets := p.empty(tokens*integer), p.empty(tokens*integer)
		t := &tape{p: p, n: &m.network, records: true}
		m.embed(t, tokens)
		for i := range m.layers {
			l := &m.layers[i]
			m.attend(t, l, tokens)
			if l.experts == nil {
				m.think(t, l, tokens)
			} else {
				m.consult(t, l, tokens, p.route(liking[i], tokens, capacity))
			}
		}
		m.zero()
		m.learn(t, tokens)
		p.drop(ids, targets)
		m.step()
	}
	return p.end()
}

// route draws the number of tokens of each expert, with two experts for each token. Capacity is the maximum for an
// expert as a multiple of an even share; 0 means no maximum.
func (p *process) route(liking []float64, tokens int64, capacity float64) []int64 {
	shares, sum := make([]float64, len(liking)), 0.0
	for e := range liking {
		liking[e] = 0.98*liking[e] + 0.14*p.rng.NormFloat64()
		shares[e] = math.Exp(liking[e])
		sum += shares[e]
	}
	routed := make([]int64, len(liking))
	for e := range routed {
		mean := 2 * float64(tokens) * shares[e] / sum
		routed[e] = max(0, min(tokens, int64(mean+math.Sqrt(mean)*p.rng.NormFloat64())))
		if capacity > 0 {
			routed[e] = min(routed[e], int64(capacity*2*float64(tokens)/float64(len(liking))))
		}
	}
	return routed
}

// consult is the second branch of a layer with experts: the gate, then each expert on its tokens.
func (m *transformer) consult(t *tape, l *layer, tokens int64, routed []int64) {
	p, n := m.p, int64(len(l.experts))
	t.fork()
	m.normalize(t, l.second, tokens)
	t.do(op{out: tokens * m.d * half})
	input, size := t.now, t.size

	gate := &tape{p: p, n: &m.network, now: p.share(input), size: size, records: true}
	m.product(gate, l.gate, tokens)
	gate.do(op{out: tokens * n * single})                 // a softmax is in single precision
	gate.do(op{out: tokens * n * single, savesOut: true}) // and its result
	top := p.all(tokens*2*single, tokens*2*integer)
	p.drop(gate.now)
	p.scratch(tokens*single, tokens*2*single) // the sums for normalization
	hot := p.empty(tokens * 2 * n * integer)  // one-hot routes
	t.now = p.empty(size)
	var asked []*consultation
	for e, count := range routed {
		if count > 0 {
			asked = append(asked, m.consultOne(l.experts[e], count))
		}
	}
	p.drop(hot)
	t.later(func(grad tensor) tensor {
		var sum tensor
		for i := len(asked) - 1; i >= 0; i-- {
			c := asked[i]
			g := c.backward(p.empty(c.size))
			full := p.empty(size) // the gradient of the gathered rows, scattered into zeros
			p.scratch(c.index...)
			p.drop(g)
			p.drop(c.rows...)
			if sum == 0 {
				sum = full
			} else {
				p.drop(full)
			}
		}
		p.drop(grad)
		p.drop(gate.backward(p.empty(tokens * n * single)))
		p.drop(top...)
		p.drop(input)
		return sum
	})
	t.join()
}

// A consultation is an expert's work on its tokens.
type consultation struct {
	tape
	rows  []tensor // indices of the tokens
	index []int64  // sizes of the sorted indices, which the backward pass needs
}

// consultOne runs an expert on some rows. Its output is added to the rows of the existing result.
func (m *transformer) consultOne(e expert, count int64) *consultation {
	p, d := m.p, m.d
	c := &consultation{index: []int64{count * integer, count * integer}}
	c.rows = p.all(c.index...)
	c.tape = tape{p: p, n: &m.network, now: p.empty(count * d * half), size: count * d * half, records: true}
	m.product(&c.tape, e.up, count)
	c.do(op{out: count * e.up.out * half, savesInput: true})
	m.product(&c.tape, e.down, count)
	c.do(op{out: count * d * half, savesInput: true, extra: []int64{count * half}}) // weighted by the gate
	p.drop(c.now)
	return c
}
