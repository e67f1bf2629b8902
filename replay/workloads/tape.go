package workloads

// A tape runs a chain of operations, each on what the one before made, and notes what the backward pass is to do.
type tape struct {
	p       *process
	n       *network
	now     tensor // what the last operation made
	size    int64  // of now, in bytes
	records bool   // false: nothing is saved (no_grad)
	backs   []func(grad tensor) tensor
	forks   []fork
	passing []tensor // gradients on their way past a residual branch
}

// A fork is the input of a residual branch.
type fork struct {
	at   tensor
	size int64
}

// An op is an operation that makes one tensor of another. Sizes are bytes.
type op struct {
	out        int64   // what it makes
	scratch    []int64 // for the time of it
	extra      []int64 // made beside out, and saved
	leaf       bool    // its input has no gradient
	savesInput bool    // savesInput, savesOut: for the backward pass
	savesOut   bool
	weights    []weight // whose gradients it has
	casts      bool     // it makes copies of weights in half precision, and saves them
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

// later notes what the backward pass is to do here: f owns the gradient that it is given, and gives one away.
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

// join adds what the branch came to to its input.
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

// backward goes back from a gradient of what was made last, and returns that of the input.
func (t *tape) backward(grad tensor) tensor {
	for len(t.backs) > 0 {
		last := len(t.backs) - 1
		f := t.backs[last]
		t.backs = t.backs[:last]
		grad = f(grad)
	}
	return grad
}
