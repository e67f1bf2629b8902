package workloads

import "github.com/ashlar-go/ashlar/trace"

// GNN is the training of a graph attention network of three layers on neighbourhoods sampled from a graph of 600,000
// nodes, whose features are on the device. The numbers of nodes and edges in each hop differ from step to step. They
// are far larger in some steps, because a few nodes have many neighbours. At intervals the network is evaluated on
// larger neighbourhoods.
func GNN(seed uint64) *trace.Program { return graphs(newProcess(seed, 1)) }

// Prefetch is GNN with a second stream that loads batches two steps ahead. They are freed while the first stream may
// still use them (record_stream).
func Prefetch(seed uint64) *trace.Program { return graphs(newProcess(seed, 2)) }

const (
	features = 128 // of a node
	hidden   = 256 // in 4 heads
	classes  = 47
)

// A graphNetwork holds the weights of a graph attention network.
type graphNetwork struct {
	network
	layers []graphLayer
}

type graphLayer struct {
	width             int64 // width of its output
	heads             int64
	project, skip     linear
	from, to, shift   weight // of attention, and the bias
	scale, move, mean weight // of batch normalization
}

// A sample is a batch: nodes by hop, those of the seeds first, and edges between neighbouring hops.
type sample struct {
	nodes []int64
	edges []int64
	data  []tensor // indices of nodes, then two for each edge, the outermost hop first
	x     tensor   // features
}

func graphs(p *process) *trace.Program {
	m := &graphNetwork{network: network{p: p}}
	p.empty(600_000 * features * single)
	p.empty(600_000 * integer) // labels
	for i, in := range []int64{features, hidden, hidden} {
		l := graphLayer{width: hidden, heads: 4}
		if i == 2 {
			l.width, l.heads = classes, 1
		}
		l.project, l.skip = m.linear(in, l.width), m.linear(in, l.width)
		l.from, l.to, l.shift = m.weight(l.width), m.weight(l.width), m.weight(l.width)
		l.scale, l.move, l.mean = m.weight(l.width), m.weight(l.width), m.weight(2*l.width)
		m.layers = append(m.layers, l)
	}
	var queue []*sample
	for step := 0; p.allocations() < 20000; step++ {
		train := trains(step)
		if p.program.Streams == 1 {
			queue = append(queue, p.sample(train))
		} else {
			for len(queue) < 3 {
				p.on(1, func() { queue = append(queue, p.sample(trains(step+len(queue)))) })
				s := queue[len(queue)-1]
				p.recordStream(s.data...)
				p.recordStream(s.x)
			}
		}
		m.zero()
		m.run(queue[0], train)
		queue = queue[1:]
		if train {
			m.step()
		}
	}
	return p.end()
}

// trains reports whether a step is one of training; the others evaluate.
func trains(step int) bool { return step%16 < 14 }

// sample draws a random neighbourhood and loads it.
func (p *process) sample(train bool) *sample {
	seeds, fan := int64(1024), []int64{12, 8, 4}
	if !train {
		seeds, fan = 1536, []int64{16, 8, 4}
	}
	s := &sample{nodes: []int64{seeds}}
	for _, f := range fan {
		last := s.nodes[len(s.nodes)-1]
		edges := p.near(last*f, 0.25)
		if p.rng.IntN(8) == 0 {
			edges += edges / 2 // a hub
		}
		// Neighbourhoods overlap, and larger ones overlap more.
		found := int64(float64(edges) * 600_000 / float64(600_000+edges) * (0.6 + 0.2*p.rng.Float64()))
		s.edges = append(s.edges, edges)
		s.nodes = append(s.nodes, last+found)
	}
	outer := s.nodes[len(s.nodes)-1]
	s.data = p.all(outer*integer, seeds*integer)
	for i := len(s.edges) - 1; i >= 0; i-- {
		s.data = append(s.data, p.empty(2*s.edges[i]*integer))
	}
	s.x = p.empty(outer * features * single)
	return s
}

// run runs a step on one sample and drops the sample.
func (m *graphNetwork) run(s *sample, train bool) {
	p := m.p
	size := s.nodes[len(s.nodes)-1] * features * single
	t := &tape{p: p, n: &m.network, now: s.x, size: size, records: train}
	for i := range m.layers {
		hop := len(s.edges) - 1 - i
		m.layer(t, &m.layers[i], s.nodes[hop+1], s.nodes[hop], s.edges[hop], i < len(m.layers)-1)
	}
	t.do(op{out: t.size, savesOut: true}) // log_softmax
	t.do(op{out: single, extra: []int64{single}})
	if train {
		p.drop(t.backward(p.empty(single)))
	}
	p.drop(t.now)
	p.drop(s.data...)
}

// layer computes to nodes of a hop from the from nodes of the next hop and the edges between them.
func (m *graphNetwork) layer(t *tape, l *graphLayer, from, to, edges int64, active bool) {
	p, leaf := m.p, l == &m.layers[0]
	in, own := t.now, t.size/from*to
	side := &tape{p: p, n: &m.network, now: p.empty(own), size: own, records: t.records} // the nodes' own features
	narrow := to * l.width * single
	side.do(op{out: narrow, savesInput: true, leaf: leaf, weights: []weight{l.skip.w, l.skip.bias}})

	t.now = p.share(in)
	t.do(op{out: from * l.width * single, savesInput: true, leaf: leaf, weights: []weight{l.project.w, l.project.bias}})
	m.send(t, l, from, to, edges)
	t.do(op{out: narrow, weights: []weight{l.shift}})
	joined := p.empty(narrow)
	p.drop(t.now, side.now, in)
	t.now = joined
	t.later(func(grad tensor) tensor {
		p.drop(side.backward(p.share(grad)))
		return grad
	})
	if !active {
		return
	}
	stats := []int64{l.width * single, l.width * single}
	t.do(op{out: narrow, savesInput: true, extra: stats, weights: []weight{l.scale, l.move}})
	t.do(op{out: narrow, savesOut: true}) // elu
	if t.records {
		t.do(op{out: narrow, extra: []int64{to * l.width * mask}}) // dropout
	}
}

// send sends messages along edges: the features of the source nodes, weighted by attention and summed at the target
// nodes.
func (m *graphNetwork) send(t *tape, l *graphLayer, from, to, edges int64) {
	p, projected := m.p, t.now
	wide, narrow, message := t.size, to*l.width*single, edges*l.width*single
	left, right, each := from*l.heads*single, to*l.heads*single, edges*l.heads*single // a number for each head

	// Attention: terms of both ends, gathered for each edge, then a softmax over the edges of a node.
	ends := p.all(left, right)
	p.scratch(wide) // products before they are summed
	gathered := p.all(each, each)
	sum := p.empty(each)
	p.drop(gathered...)
	leaky := p.empty(each)
	most := p.empty(right)
	p.scratch(edges*l.heads*integer, each) // the index, expanded to the scattered width; the gathered maxima
	shifted := p.empty(each)
	exp := p.empty(each)
	p.drop(shifted, most)
	total := p.empty(right)
	p.scratch(edges*l.heads*integer, each)
	attention := p.empty(each)
	p.drop(leaky)
	kept := append(ends, sum, exp, total, attention, projected)

	messages := p.empty(message)
	weighted := p.empty(message)
	p.scratch(edges * l.width * integer)
	t.now, t.size = p.empty(narrow), narrow
	p.drop(weighted)
	if !t.records {
		p.drop(kept...)
		p.drop(messages)
		return
	}
	t.later(func(grad tensor) tensor {
		spread := p.empty(message) // the gradient, gathered for each edge
		back := p.empty(message)
		products := p.empty(message)
		weights := p.empty(each)
		p.drop(products, spread, messages)
		below := p.empty(wide)
		p.scratch(edges * l.width * integer)
		p.drop(back)
		for range 4 { // softmax and leaky ReLU
			next := p.empty(each)
			p.scratch(right)
			p.drop(weights)
			weights = next
		}
		p.scratch(left, right, wide)
		m.arrive(l.from, false)
		m.arrive(l.to, false)
		p.drop(weights)
		p.drop(kept...)
		p.drop(grad)
		return below
	})
}
