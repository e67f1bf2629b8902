package sim

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// The oracle uses no clocks. It keeps every access and a graph of direct predecessors, and searches the graph to
// determine whether one access comes before another.
type oracle struct {
	before   [][]int // of each node: the nodes directly before it
	last     []int   // of each stream number: its last node, or -1
	host     int     // the last thing that the host learnt, or -1
	accesses []madeAccess
}

type madeAccess struct {
	node  int
	seq   uint64
	write bool
	r     driver.Range
	bytes map[int]bool // physical bytes
	alias bool         // through the mapping that comes and goes, of its current life
}

func (o *oracle) node(before ...int) int {
	o.before = append(o.before, before)
	return len(o.before) - 1
}

// onStream adds a node after the stream's last one.
func (o *oracle) onStream(id driver.StreamID, before ...int) int {
	for len(o.last) <= int(id) {
		o.last = append(o.last, -1)
	}
	n := o.node(append(before, o.last[id], o.host)...)
	o.last[id] = n
	return n
}

func (o *oracle) learn(node int) { o.host = o.node(node, o.host) }

// reaches reports whether node a comes before one of the nodes in from.
func (o *oracle) reaches(a int, from ...int) bool {
	seen := make([]bool, len(o.before))
	from = slices.Clone(from)
	for len(from) > 0 {
		n := from[len(from)-1]
		from = from[:len(from)-1]
		if n < 0 || seen[n] {
			continue
		}
		if seen[n] = true; n == a {
			return true
		}
		from = append(from, o.before[n]...)
	}
	return false
}

// conflicts returns the accesses that race with one that would follow the nodes in from.
func (o *oracle) conflicts(write bool, bytes map[int]bool, from ...int) (found []madeAccess) {
	for _, a := range o.accesses {
		if (a.write || write) && overlaps(a.bytes, bytes) && !o.reaches(a.node, from...) {
			found = append(found, a)
		}
	}
	return found
}

func overlaps(a, b map[int]bool) bool {
	for i := range a {
		if b[i] {
			return true
		}
	}
	return false
}
