package schedule

// classes are the equivalence classes of evicted storages of DTR: connected evicted storages share a class, whose cost
// is the sum of theirs. A storage that is made again leaves its class, which stays in one piece though it may have
// fallen apart: only its cost is subtracted.
type classes struct {
	e     *Engine
	nodes []classNode
}

type classNode struct {
	parent int32
	cost   int64
}

// root returns the class of an evicted storage.
func (c *classes) root(s Storage) int32 {
	n := c.e.storages[s].class
	for c.nodes[n].parent != n {
		c.nodes[n].parent = c.nodes[c.nodes[n].parent].parent
		n = c.nodes[n].parent
	}
	return n
}

// insert makes a class of a storage that was evicted and joins it with those of its neighbours.
func (c *classes) insert(s Storage) {
	n := int32(len(c.nodes))
	c.nodes = append(c.nodes, classNode{n, c.e.storages[s].cost})
	c.e.storages[s].class = n
	join := func(other Storage) {
		if c.e.storages[other].class == None {
			return
		}
		if r := c.root(other); r != n {
			c.nodes[r].parent = n
			c.nodes[n].cost += c.nodes[r].cost
		}
	}
	c.e.parents(s, join)
	c.e.children(s, join)
}

// remove takes a storage out of its class.
func (c *classes) remove(s Storage) {
	if c.e.storages[s].class == None {
		return
	}
	c.nodes[c.root(s)].cost -= c.e.storages[s].cost
	c.e.storages[s].class = None
	if len(c.nodes) > 4*len(c.e.storages)+1024 {
		c.compact()
	}
}

// compact removes the nodes that are not the class of any storage.
func (c *classes) compact() {
	var nodes []classNode
	numbers := map[int32]int32{}
	for i := range c.e.storages {
		s := &c.e.storages[i]
		if s.class == None {
			continue
		}
		root := c.root(Storage(i))
		n, ok := numbers[root]
		if !ok {
			n = int32(len(nodes))
			numbers[root] = n
			nodes = append(nodes, classNode{n, c.nodes[root].cost})
		}
		s.class = n
	}
	c.nodes = nodes
}

// around returns the cost of the classes next to a resident storage.
func (c *classes) around(s Storage, seen []int32) (cost int64, _ []int32) {
	seen = seen[:0]
	add := func(other Storage) {
		if c.e.storages[other].class == None {
			return
		}
		r := c.root(other)
		for _, x := range seen {
			if x == r {
				return
			}
		}
		seen = append(seen, r)
		cost += c.nodes[r].cost
	}
	c.e.parents(s, add)
	c.e.children(s, add)
	return cost, seen
}
