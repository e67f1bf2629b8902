package workloads

import "github.com/ashlar-go/ashlar/trace"

// Serving is a language model with 0.9 billion weights that serves requests as they arrive: it accepts prompts of up to
// 4096 tokens while it generates other answers. Each request has its own caches, a pair for each layer, with spare room
// for some tokens. When a cache is full, it is copied to a larger one and freed. Answers are generated with captured
// graphs, so a token allocates memory only for sampling.
func Serving(seed uint64) *trace.Program {
	p := newProcess(seed, 1)
	m := newDecoder(p)
	return m.serve(func(r *request) {
		if r.length <= r.room {
			return
		}
		const step = 128 // tokens
		r.room = (r.length + step) / step * step
		for i := range 2 * m.layers {
			larger := p.empty(r.room * m.narrow * half)
			if len(r.cache) <= i {
				r.cache = append(r.cache, larger)
				continue
			}
			p.drop(r.cache[i])
			r.cache[i] = larger
		}
	})
}

// ServingBlocks is Serving with caches that consist of fixed blocks of 1 MiB, each for 16 tokens in all layers.
func ServingBlocks(seed uint64) *trace.Program {
	p := newProcess(seed, 1)
	m := newDecoder(p)
	return m.serve(func(r *request) {
		const step = 16 // tokens
		for r.length > r.room {
			r.room += step
			r.cache = append(r.cache, p.empty(step*2*int64(m.layers)*m.narrow*half))
		}
	})
}

// Decode is the same model with batches of prompts. A batch runs until all its answers are complete, and has a cache.
// For each token, the two caches of each layer are concatenated with the new values: a slightly larger cache is
// allocated and the old one is freed. During attention both are expanded to the number of query heads.
func Decode(seed uint64) *trace.Program {
	p := newProcess(seed, 1)
	m := newDecoder(p)
	cache := make([]tensor, 2*m.layers)
	for p.allocations() < 20000 {
		length := p.between(128, 2048)
		batch := max(1, p.near(36000, 0.3)/length)
		x := m.embed(batch * length)
		x = m.forward(x, batch*length, func(layer int, k, v tensor) { cache[2*layer], cache[2*layer+1] = k, v })
		p.drop(x)
		m.sample(batch)
		for range p.between(12, 40) {
			length++
			x := m.embed(batch)
			x = m.forward(x, batch, func(layer int, k, v tensor) {
				size := batch * length * m.narrow * half
				for i, t := range []tensor{k, v} {
					longer := p.empty(size)
					p.drop(t, cache[2*layer+i])
					cache[2*layer+i] = longer
				}
				p.scratch(size/m.narrow*m.d, size/m.narrow*m.d)
			})
			p.drop(x)
			m.sample(batch)
		}
		p.drop(cache...)
	}
	return p.end()
}

// A decoder holds the weights of a language model in half precision.
type decoder struct {
	p          *process
	layers     int
	d, wide    int64
	narrow     int64 // width of keys, and of values: fewer heads than queries have
	vocabulary int64
}

func newDecoder(p *process) *decoder {
	m := &decoder{p: p, layers: 16, d: 2048, wide: 5632, narrow: 1024, vocabulary: 32000}
	p.empty(m.vocabulary * m.d * half)
	for range m.layers {
		p.all(m.d*half, m.d*m.d*half, m.d*m.narrow*half, m.d*m.narrow*half, m.d*m.d*half)
		p.all(m.d*half, m.d*m.wide*half, m.d*m.wide*half, m.d*m.wide*half)
	}
	p.all(m.d*half, m.vocabulary*m.d*half)
	return m
}

func (m *decoder) embed(tokens int64) tensor {
	ids := m.p.empty(tokens * integer)
	x := m.p.empty(tokens * m.d * half)
	m.p.drop(ids)
	return x
}

// forward runs the layers on x and drops x. It calls keep with the keys and values of each layer.
func (m *decoder) forward(x tensor, tokens int64, keep func(layer int, k, v tensor)) tensor {
	p, size := m.p, tokens*m.d*half
	normalized := func() tensor {
		precise := p.all(2*size, 2*size, tokens*single)
		y := p.empty(size)
		p.drop(precise...)
		return y
	}
	for i := range m.layers {
		y := normalized()
		q := p.empty(size)
		k, v := p.empty(tokens*m.narrow*half), p.empty(tokens*m.narrow*half)
		p.drop(y)
		p.scratch(size, size) // rotary embedding
		rotated := p.empty(size)
		p.drop(q)
		keep(i, k, v)
		attended := p.empty(size)
		p.drop(rotated)
		out := p.empty(size)
		p.drop(attended)
		sum := p.empty(size)
		p.drop(out, x)
		x = sum

		y = normalized()
		gate := p.empty(tokens * m.wide * half)
		active := p.empty(tokens * m.wide * half)
		p.drop(gate)
		up := p.empty(tokens * m.wide * half)
		product := p.empty(tokens * m.wide * half)
		p.drop(active, up, y)
		down := p.empty(size)
		p.drop(product)
		sum = p.empty(size)
		p.drop(down, x)
		x = sum
	}
	return x
}

// sample draws the next token of n answers from the likeliest ones (top-p).
func (m *decoder) sample(n int64) {
	p, row := m.p, n*m.vocabulary
	logits := p.empty(row * single)
	sorted := p.all(row*single, row*integer)
	chances := p.empty(row * single)
	sums := p.empty(row * single)
	p.drop(sorted[0])
	out := p.empty(row * mask)
	p.drop(sums)
	token := p.empty(n * integer)
	p.drop(out, chances, sorted[1], logits, token)
}

// A request is a prompt with the tokens of its answer so far.
type request struct {
	length, end int64 // tokens
	room        int64 // capacity of the cache in tokens
	cache       []tensor
}

// serve answers requests. It calls grow to make room for a request's length in its cache.
func (m *decoder) serve(grow func(*request)) *trace.Program {
	const most = 64 << 10 // maximum number of tokens of all requests
	p := m.p
	p.all(64*m.d*half, 64*m.wide*half, 64*m.vocabulary*half) // memory of the graphs
	var running []*request
	var waiting *request
	for p.allocations() < 25000 {
		for {
			if waiting == nil {
				prompt := p.between(32, 4096)
				waiting = &request{length: prompt, end: prompt + p.between(16, 1024)}
			}
			promised := waiting.end
			for _, r := range running {
				promised += r.end
			}
			// The load varies: there may be no requests for a while, and then many.
			if promised > most || p.rng.IntN(12) == 0 {
				break
			}
			x := m.embed(waiting.length)
			grow(waiting)
			x = m.forward(x, waiting.length, func(_ int, k, v tensor) { p.drop(k, v) })
			p.drop(x)
			m.sample(1)
			running = append(running, waiting)
			waiting = nil
		}
		m.sample(int64(len(running)))
		left := running[:0]
		for _, r := range running {
			if r.length++; r.length > r.end {
				p.drop(r.cache...)
				continue
			}
			grow(r)
			left = append(left, r)
		}
		running = left
	}
	return p.end()
}
