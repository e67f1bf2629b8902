package estimate

// maxOps is the approximate number of requests that the generation of tokens is simulated with. If it takes more, only
// every n-th token is simulated.
const maxOps = 40_000

// infer records the processing of a prompt and the generation of tokens as PyTorch would run them.
func (t *transformer) infer() {
	t.usage.begin("load")
	for _, w := range t.weights {
		w.memory = t.allocate(w.size(), Weights)
	}
	if t.Layers == 0 {
		return
	}
	batch := t.o.Batch
	t.cache = newCache(t, t.o.Cache, batch, t.o.Sequence+t.o.New)
	t.category = Activations
	t.usage.begin("prompt")
	t.allocate(t.o.Workspace, Workspace)
	t.forward(t.o.Sequence, t.o.Sequence)
	if t.o.New == 0 {
		return
	}
	t.usage.begin("generation")
	before := len(t.program.Ops)
	t.forward(1, t.o.Sequence+1)
	stride := max(1, int64(len(t.program.Ops)-before)*t.o.New/maxOps)
	for n := 1 + stride; n < t.o.New-1; n += stride {
		t.forward(1, t.o.Sequence+n)
	}
	for n := max(2, t.o.New-1); n <= t.o.New; n++ { // so that the caches grow by one token at last
		t.forward(1, t.o.Sequence+n)
	}
}

// forward processes new tokens of each sequence, which then has length tokens.
func (t *transformer) forward(tokens, length int64) {
	t.tokens, t.cache.length = t.o.Batch*tokens, length
	ids := t.allocate(t.tokens*token, Inputs)
	t.category = Activations
	x := t.embed()
	for i := range t.Layers {
		x = t.layer(i, x)
	}
	if t.Vocabulary > 0 {
		if !t.o.AllLogits && tokens > 1 {
			last := t.run(operation{out: dim{x.name, x.width, x.bytes}, view: true, inputs: []*value{x}})
			t.release(x)
			t.tokens = t.o.Batch
			x = last
		}
		x = t.logits(x)
	}
	t.release(x)
	t.endAutocast(t.weights)
	t.drop(ids)
}
