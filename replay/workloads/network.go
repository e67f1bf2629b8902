package workloads

// A network holds weights in single precision and their training state.
type network struct {
	p         *process
	sharded   bool     // new weights are parts of a unit: see unit
	apart     []tensor // gradients of parts, in half precision
	elements  []int64
	weights   []tensor
	gradients []tensor
	moments   [][2]tensor // Adam's
}

// A weight is an index into the weights of a network.
type weight int

// weight makes a weight with a number of elements.
func (n *network) weight(elements int64) weight {
	var held tensor
	if !n.sharded {
		held = n.p.empty(elements * single)
	}
	n.elements = append(n.elements, elements)
	n.weights = append(n.weights, held)
	n.gradients = append(n.gradients, 0)
	return weight(len(n.elements) - 1)
}

// A unit is the weights of a layer as one tensor, divided among several devices.
type unit struct {
	share weight // the part of this device
	total int64  // elements
}

// unit makes a unit of the weights from index from on.
func (n *network) unit(from int, devices int64) unit {
	var total int64
	for _, elements := range n.elements[from:] {
		total += elements
	}
	n.sharded = false
	return unit{n.weight(total / devices), total}
}

// cast makes a copy of a weight in half precision, as autocast does. A part needs no copy: it is in the gathered unit.
func (n *network) cast(w weight) tensor {
	if n.weights[w] == 0 {
		return 0
	}
	return n.p.empty(n.elements[w] * half)
}

// arrive makes a weight's gradient: first in half precision if the operation was, then in single precision. The first
// gradient of a step is kept, and further ones are added to it.
func (n *network) arrive(w weight, wasHalf bool) {
	if n.weights[w] == 0 {
		n.apart = append(n.apart, n.p.empty(n.elements[w]*half))
		return
	}
	var low tensor
	if wasHalf {
		low = n.p.empty(n.elements[w] * half)
	}
	g := n.p.empty(n.elements[w] * single)
	n.p.drop(low)
	if n.gradients[w] == 0 {
		n.gradients[w] = g
	} else {
		n.p.drop(g)
	}
}

// zero drops the gradients (zero_grad with set_to_none).
func (n *network) zero() {
	for i, g := range n.gradients {
		n.p.drop(g)
		n.gradients[i] = 0
	}
}

// step runs a step of Adam over all weights at once (foreach). The first step allocates the state. Temporaries are
// allocated for all weights with a gradient, and freed in reverse order. Gradients are clipped before, with a norm for
// each.
func (n *network) step() {
	p := n.p
	norms := make([]tensor, 0, len(n.weights))
	for _, g := range n.gradients {
		if g != 0 {
			norms = append(norms, p.empty(single))
		}
	}
	p.scratch(int64(len(norms))*single, single, single)
	p.drop(norms...)
	if n.moments == nil {
		n.moments = make([][2]tensor, len(n.weights))
	}
	var roots []int64
	for i, g := range n.gradients {
		if g == 0 {
			continue
		}
		size := n.elements[i] * single
		if n.moments[i] == ([2]tensor{}) {
			n.moments[i] = [2]tensor{p.empty(size), p.empty(size)}
		}
		roots = append(roots, size)
	}
	p.scratch(roots...)
}
