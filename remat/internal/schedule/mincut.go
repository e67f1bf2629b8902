package schedule

// A network is a directed graph whose edges have capacities. Dinic's algorithm finds the cut of least capacity between
// its source and its sink.
type network struct {
	first []int32 // of each node: its latest edge, or None
	edges []edge  // each is followed by its reverse
	level []int32 // of each node: the distance from the source, or None
	at    []int32 // of each node: the next edge to try
	queue []int32
}

type edge struct {
	to, next int32
	capacity int64
}

const (
	source = 0
	sink   = 1
	// uncut is the capacity of an edge that no cut contains. Few of them, and the sums of all others, fit an int64.
	uncut = 1 << 60
)

// reset leaves the source and the sink.
func (n *network) reset() { n.first, n.edges = append(n.first[:0], None, None), n.edges[:0] }

func (n *network) node() int32 {
	n.first = append(n.first, None)
	return int32(len(n.first) - 1)
}

func (n *network) connect(from, to int32, capacity int64) {
	n.edges = append(n.edges, edge{to, n.first[from], capacity}, edge{from, n.first[to], 0})
	n.first[from], n.first[to] = int32(len(n.edges)-2), int32(len(n.edges)-1)
}

// cut returns the capacity of the least cut. Afterwards reached reports which nodes are on the source's side.
func (n *network) cut() int64 {
	total := int64(0)
	for n.levels() {
		n.at = append(n.at[:0], n.first...)
		for f := n.augment(source, uncut); f > 0; f = n.augment(source, uncut) {
			total += f
		}
	}
	return total
}

func (n *network) reached(node int32) bool { return n.level[node] != None }

// levels finds the distances from the source, and reports whether the sink can be reached.
func (n *network) levels() bool {
	n.level = n.level[:0]
	for range n.first {
		n.level = append(n.level, None)
	}
	n.level[source] = 0
	n.queue = append(n.queue[:0], source)
	for i := 0; i < len(n.queue); i++ {
		from := n.queue[i]
		for e := n.first[from]; e != None; e = n.edges[e].next {
			if to := n.edges[e].to; n.edges[e].capacity > 0 && n.level[to] == None {
				n.level[to] = n.level[from] + 1
				n.queue = append(n.queue, to)
			}
		}
	}
	return n.level[sink] != None
}

// augment sends at most so much to the sink over edges of ascending levels, and returns how much it sent.
func (n *network) augment(from int32, most int64) int64 {
	if from == sink {
		return most
	}
	sent := int64(0)
	for ; n.at[from] != None; n.at[from] = n.edges[n.at[from]].next {
		i := n.at[from]
		e := &n.edges[i]
		if e.capacity == 0 || n.level[e.to] != n.level[from]+1 {
			continue
		}
		f := n.augment(e.to, min(most-sent, e.capacity))
		e.capacity -= f
		n.edges[i^1].capacity += f
		if sent += f; sent == most {
			break
		}
	}
	return sent
}
