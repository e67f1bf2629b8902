package workloads

import "github.com/ashlar-go/ashlar/trace"

// Checkpoint is the training of a transformer with 250 million weights in mixed precision with activation
// checkpointing: the forward pass keeps only the input of each layer, and the backward pass recomputes the rest. Length
// and batch vary from step to step.
func Checkpoint(seed uint64) *trace.Program {
	p := newProcess(seed, 1)
	return checkpointed(p, 1, func(*transformer, int, bool) func() { return func() {} })
}

// Sharded is Checkpoint on eight devices, each with a part of every layer's weights. A second stream gathers the
// weights of a layer while the layer before runs, and reduces its gradients afterwards. Blocks that the two streams
// share are freed while one of them still uses them (record_stream).
func Sharded(seed uint64) *trace.Program {
	const second, devices = 1, 8
	p := newProcess(seed, 2)
	gathered := map[int]tensor{}
	gather := func(m *transformer, i int) {
		if i < 0 || i >= len(m.layers) || gathered[i] != 0 {
			return
		}
		p.on(second, func() {
			size := m.layers[i].unit.total * half
			part := p.empty(size / devices)
			gathered[i] = p.empty(size)
			p.recordStream(gathered[i])
			p.drop(part)
		})
	}
	return checkpointed(p, devices, func(m *transformer, i int, back bool) func() {
		gather(m, i)
		if back {
			gather(m, i-1)
		} else {
			gather(m, i+1)
		}
		return func() {
			p.drop(gathered[i])
			gathered[i] = 0
			if !back {
				return
			}
			u := m.layers[i].unit
			flat := p.empty(u.total * half)
			p.recordStream(flat)
			p.drop(m.apart...)
			m.apart = nil
			p.on(second, func() {
				part := p.empty(u.total / devices * half)
				m.arrive(u.share, false)
				p.drop(part)
			})
			p.drop(flat)
		}
	})
}

// checkpointed runs the training. It calls enter before the forward or backward work of a layer, and the result of
// enter after it.
func checkpointed(
	p *process, devices int64, enter func(m *transformer, layer int, back bool) (leave func()),
) *trace.Program {
	const most = 12288 // approximate number of tokens of a step
	m := newTransformer(p, 1024, 16, 50304, devices, 16, func(int) (int64, int64) { return 0, 0 })
	for range 16 {
		length := 64 * (p.between(128, 4096) / 64)
		tokens := length * max(1, p.near(most, 0.3)/length)
		ids, targets := p.empty(tokens*integer), p.empty(tokens*integer)
		t := &tape{p: p, n: &m.network, records: true}
		m.embed(t, tokens)
		for i := range m.layers {
			m.remembered(t, i, tokens, enter)
		}
		m.learn(t, tokens)
		p.drop(ids, targets)
		m.step()
		m.zero()
	}
	return p.end()
}

// remembered runs a layer and saves only its input. The backward pass runs the layer again.
func (m *transformer) remembered(t *tape, i int, tokens int64, enter func(*transformer, int, bool) func()) {
	p, l := m.p, &m.layers[i]
	run := func(t *tape) {
		m.attend(t, l, tokens)
		m.think(t, l, tokens)
	}
	input, size := p.share(t.now), t.size
	random := p.empty(16) // the state of the random number generator
	leave := enter(m, i, false)
	forward := &tape{p: p, n: &m.network, now: t.now, size: size}
	run(forward)
	leave()
	t.now, t.size = forward.now, forward.size
	t.later(func(grad tensor) tensor {
		leave := enter(m, i, true)
		again := &tape{p: p, n: &m.network, now: p.share(input), size: size, records: true}
		run(again)
		p.drop(again.now)
		grad = again.backward(grad)
		leave()
		p.drop(input, random)
		return grad
	})
}
