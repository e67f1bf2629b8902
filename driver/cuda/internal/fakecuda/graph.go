//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "slices"

// A graph is captured work in the order of its capture. In that order, work comes after the work that it waits for.
type graph struct {
	nodes []node
}

// A graphExec is a graph that can be launched. Its launches run one after another.
type graphExec struct {
	nodes []node
	last  *work
}

func (c *call) graphInstantiate(h *uint64, graphHandle, flags uint64) Result {
	g, ok := lookup[*graph](c.Machine, graphHandle)
	if !ok || h == nil || flags&^1 != 0 { // 1 is CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
		return InvalidValue
	}
	return out(h, c.newHandle(&graphExec{nodes: slices.Clone(g.nodes)}))
}

func (c *call) graphLaunch(h, streamHandle uint64) Result {
	g, ok := lookup[*graphExec](c.Machine, h)
	if !ok {
		return c.misuse(InvalidValue, "no such graph: %#x", h)
	}
	s, r := c.stream(streamHandle)
	if r != Success {
		return r
	}
	var cost int64
	for _, n := range g.nodes {
		cost += n.cost
	}
	run := func() Result {
		for _, n := range g.nodes {
			if r := n.run(); r != Success {
				return r
			}
		}
		return Success
	}
	if g.last != nil && s.capture == nil {
		c.enqueue(s, 0, nil, g.last)
	}
	w, r := c.submit(s, nodeGraph, cost, run)
	if w != nil {
		g.last = w
	}
	return r
}

func (c *call) graphGetNodes(h uint64, nodes *uint64, n *uint64) Result {
	g, ok := lookup[*graph](c.Machine, h)
	if !ok || n == nil {
		return InvalidValue
	}
	if nodes == nil {
		*n = uint64(len(g.nodes))
		return Success
	}
	to := arrayOf(nodes, *n)
	*n = uint64(min(len(to), len(g.nodes)))
	for i := range to {
		to[i] = 0
		if i < len(g.nodes) {
			to[i] = h + uint64(i) + 1
		}
	}
	return Success
}

func (c *call) graphDestroy(h uint64) Result {
	if _, ok := lookup[*graph](c.Machine, h); !ok {
		return c.misuse(InvalidValue, "no such graph: %#x", h)
	}
	delete(c.handles, h)
	return Success
}

// graphExecDestroy destroys a graphExec. Queued launches still run.
func (c *call) graphExecDestroy(h uint64) Result {
	if _, ok := lookup[*graphExec](c.Machine, h); !ok {
		return c.misuse(InvalidValue, "no such graph: %#x", h)
	}
	delete(c.handles, h)
	return Success
}
