package estimate

// steps is the number of training steps that are simulated. The first one allocates the optimizer's states and the
// second one has the full peak; the third shows fragmentation.
const steps = 3

// train records training steps as PyTorch would run them.
func (t *transformer) train(o *Optimizer) {
	t.usage.begin("load")
	for _, w := range t.weights {
		w.memory = t.allocate(w.size(), Weights)
	}
	if o.eager {
		o.prepare(t.graph, t.weights)
	}
	for step := range steps {
		var kept []*tensor
		for n := range t.o.Accumulate {
			kept = t.microbatch(step+int(n) == 0, kept)
		}
		t.usage.begin("optimizer step")
		o.step(t.graph, t.weights)
		for _, w := range t.weights {
			t.drop(w.grad)
			w.grad = nil
		}
		t.drop(kept...)
	}
}

// microbatch runs a forward and a backward pass. It returns tensors that the program keeps until it has the next logits
// or the step ends; kept are those of the microbatch before.
func (t *transformer) microbatch(first bool, kept []*tensor) []*tensor {
	t.usage.begin("forward pass")
	ids := t.allocate(t.tokens*token, Inputs)
	if t.Layers == 0 { // the gradients alone
		t.usage.begin("backward pass")
		for _, w := range t.weights {
			t.gradient(w, false)
		}
		return append(kept, ids)
	}
	t.records, t.category = true, Activations
	if first {
		t.allocate(t.o.Workspace, Workspace)
	}
	x := t.embed()
	t.inLayer = true
	for i := range t.Layers {
		if t.o.Checkpoint {
			x = t.checkpointed(i, x)
		} else {
			x = t.layer(i, x)
		}
	}
	t.inLayer = false
	if first {
		t.noteKept()
	}
	if t.Vocabulary > 0 {
		x = t.logits(x)
		t.drop(kept...)
		x, kept = t.loss(x)
	}
	t.endAutocast(t.weights)
	t.usage.begin("backward pass")
	if first {
		t.graph.workspace = t.o.Workspace // the thread of the backward pass has its own
	}
	t.release(x)
	t.backward(0, x, t.allocate(t.bytes(x.dim), gradientCategory(t.category)))
	return append(kept, ids)
}

// loss computes the cross entropy of logits. It releases them, unless the program keeps them until the end of the step.
func (t *transformer) loss(logits *value) (loss *value, kept []*tensor) {
	if !t.o.DropLogits {
		kept = append(kept, share(logits.memory))
	}
	x, softmax := logits, operation{keeps: true, out: logits.dim}
	switch wide := x.of(single); {
	case t.o.Kernels == Transformers && x.bytes != single:
		softmax.out = wide
		x = t.then(operation{inputs: []*value{x}, out: wide})
	case t.amp: // log_softmax reads half precision, of which it makes a copy, and writes single precision
		softmax.out, softmax.scratch = wide, []int64{t.bytes(logits.dim)}
	}
	softmax.inputs = []*value{x}
	x = t.then(softmax)
	return t.then(operation{inputs: []*value{x}, saves: []bool{true}, out: perToken(1)}), kept
}

// checkpointed runs a layer and keeps only its input. The backward pass runs the layer again.
func (t *transformer) checkpointed(i int, x *value) *value {
	input := &value{dim: x.dim, memory: share(x.memory)}
	t.records = false
	out := t.layer(i, input)
	t.records = true
	again := func(grad *tensor) *tensor {
		first := len(t.nodes)
		t.category = Activations
		input := &value{dim: x.dim, memory: share(x.memory), from: &node{size: t.bytes(x.dim)}}
		out := t.layer(i, input)
		t.endAutocast(t.weights)
		t.release(out)
		t.backward(first, out, grad)
		t.release(x)
		return input.from.grad
	}
	n := &node{op: operation{inputs: []*value{x}, rerun: again}, size: t.bytes(out.dim)}
	t.keep(&node{}, x.memory) // noted as kept; x releases it
	t.nodes = append(t.nodes, n)
	out.from = n
	return out
}
