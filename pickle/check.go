package pickle

// onPath is the height of a node on the current path of the walk.
const onPath = 1<<16 - 1

// check visits each node that is reachable from the root once. It returns an error for a value that contains itself or
// is nested too deeply. Other nodes are not checked; no Value reachable from the root refers to them.
func (m *machine) check() error {
	d := m.doc
	if !d.root.IsContainer() {
		return nil
	}
	type visit struct {
		node  uint64
		items []Value // not visited yet
	}
	heights := make([]uint16, len(d.nodes)) // 0 until visited
	if !d.root.hasNode() {
		return nil
	}
	path := []visit{{d.root.payload(), d.raw(d.root)}}
	heights[d.root.payload()] = onPath
	tallest := make([]uint16, m.limits.Depth+1) // greatest height found so far below each node on the path
walk:
	for len(path) > 0 {
		top := &path[len(path)-1]
		below := &tallest[len(path)-1]
		for len(top.items) > 0 {
			v := top.items[0]
			top.items = top.items[1:]
			if v.tag() < tagList {
				continue
			}
			h := uint16(1) // of a folded dict without a node, or several
			if v.hasNode() {
				h = heights[v.payload()]
			}
			if h == onPath {
				return m.refuse("finds a %v that contains itself", v.Kind())
			}
			if h == 0 {
				contents := d.raw(v)
				if len(contents) > 0 && len(path) < m.limits.Depth {
					heights[v.payload()] = onPath
					tallest[len(path)] = 0
					path = append(path, visit{v.payload(), contents})
					continue walk
				}
				h = 1
				heights[v.payload()] = h
			}
			*below = max(*below, h)
			if len(path)+int(h) > m.limits.Depth {
				return m.over("finds values more than %d deep", m.limits.Depth)
			}
		}
		height := *below + 1
		heights[top.node] = height
		path = path[:len(path)-1]
		if len(path) > 0 {
			tallest[len(path)-1] = max(tallest[len(path)-1], height)
		}
	}
	return nil
}
