package workloads

// A tape runs a chain of operations, each on the output of the one before, and records the steps of the backward pass.
type tape struct {
	p       *process
	n       *network
	now     tensor // the output of the last operation
	size    int64  // of now, in bytes
	records bool   // false: nothing is saved (no_grad)
	backs   []func(grad tensor) tensor
	forks   []fork
	passing []tensor // gradients that bypass a residual branch
}

// A fork is the input of a residual branch.
type fork struct {
	at   tensor
	size int64
}

// An op is an operation that computes a tensor from another. Sizes are bytes.
type op struct {
	out        int64   // its output
	scratch    []int64 // freed at its end
	extra      []int64 // further outputs, which are saved
	leaf       bool    // its input has no gradient
	savesInput bool    // savesInput and savesOut keep tensors for the backward pass
	savesOut   bool
	weights    []weight // weights that get gradients
	casts      bool     // it copies the weights to half precision and saves the copies
	backward   []int64  // scratch of the backward pass
}

func (t *tape) do(o op) {
	p, in, inSize := t.p, t.now, t.size
	var saved []tensor
	for _, w := range o.weights {
		if o.casts {
			saved = append(saved, t.n.cast(w))
		}
	}
	scratch := p.all(o.scratch...)
	out := p.empty(o.out)
	saved = append(saved, p.all(o.extra...)...)
	p.drop(scratch...)
	t.now, t.size = out, o.out
	if !t.records {
		p.drop(saved...)
		p.drop(in)
		return
	}
	if o.savesInput {
		saved = append(saved, p.share(in))
	}
	if o.savesOut {
		saved = append(saved, p.share(out))
	}
	p.drop(in)
	t.later(func(grad tensor) tensor {
		scratch := p.all(o.backward...)
		var below tensor
		if !o.leaf {
			below = p.empty(inSize)
		}
		for _, w := range o.weights {
			t.n.arrive(w, o.casts)
		}
		p.drop(scratch...)
		p.drop(saved...)
		p.drop(grad)
		return below
	})
}

// later adds a step of the backward pass: f owns the gradient that it receives, and the caller owns the gradient that
// it returns.
func (t *tape) later(f func(grad tensor) tensor) {
	if t.records {
		t.backs = append(t.backs, f)
	}
}

// fork starts a residual branch.
func (t *tape) fork() {
	t.forks = append(t.forks, fork{t.p.share(t.now), t.size})
	size := t.size
	t.later(func(grad tensor) tensor {
		last := len(t.passing) - 1
		sum := t.p.empty(size)
		t.p.drop(grad, t.passing[last])
		t.passing = t.passing[:last]
		return sum
	})
}

// join adds the output of the branch to its input.
func (t *tape) join() {
	f := t.forks[len(t.forks)-1]
	t.forks = t.forks[:len(t.forks)-1]
	sum := t.p.empty(f.size)
	t.p.drop(t.now, f.at)
	t.now, t.size = sum, f.size
	t.later(func(grad tensor) tensor {
		t.passing = append(t.passing, t.p.share(grad))
		return grad
	})
}

// backward runs the backward pass from the gradient of the last output, and returns the gradient of the input.
func (t *tape) backward(grad tensor) tensor {
	for len(t.backs) > 0 {
		last := len(t.backs) - 1
		f := t.backs[last]
		t.backs = t.backs[:last]
		grad = f(grad)
	}
	return grad
}
