package caching

// A bin of a freeSet is a B+tree.

// A node is a leaf with n entries, or an inner node with n children, where keys[i] is at most every key below kids[i]
// and greater than every key below kids[i-1]. keys[0] stands for minus infinity.
type node struct {
	n          int
	kids       *[fan]*node // nil in a leaf
	prev, next *node       // the neighbouring leaves of the bin
	keys       [fan]entry
}

// descend finds the leaf where a key belongs.
func (nd *node) descend(units, ptr uint64) *node {
	for nd.kids != nil {
		nd = nd.kids[nd.child(units, ptr)]
	}
	return nd
}

// child returns the index of the child of an inner node where a key belongs: the last child whose key is not greater.
func (nd *node) child(units, ptr uint64) int {
	lo, hi := 1, nd.n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		u := nd.keys[mid].word >> refBits
		if u < units || u == units && nd.keys[mid].ptr <= ptr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// search returns the index of the first entry that is not less than a key.
func (nd *node) search(units, ptr uint64) int {
	lo, hi := 0, nd.n
	for hi-lo > 4 {
		mid := int(uint(lo+hi) >> 1)
		if nd.keys[mid].less(units, ptr) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for lo < hi && nd.keys[lo].less(units, ptr) {
		lo++
	}
	return lo
}

// insertTree inserts an entry into the tree of its bin.
func (s *freeSet) insertTree(e entry) {
	size, ptr := e.size(), e.ptr
	b := binOf(size)
	if s.bins == nil {
		s.bins = new([numBins]*node)
	}
	nd := s.bins[b]
	if nd == nil {
		nd = s.newNode(false)
		s.bins[b] = nd
		s.used.Add(b)
		nd.n, nd.keys[0] = 1, e
		return
	}
	units := uint64(size) / unit
	var path [maxDepth]*node
	depth := 0
	for nd.kids != nil {
		path[depth] = nd
		depth++
		nd = nd.kids[nd.child(units, ptr)]
	}
	if nd.n < fan {
		nd.put(nd.search(units, ptr), e)
		return
	}
	// Split the full leaf, insert the entry into its half, and add the new sibling to the parent.
	right := s.splitNode(nd)
	right.prev, right.next = nd, nd.next
	if nd.next != nil {
		nd.next.prev = right
	}
	nd.next = right
	if right.keys[0].less(units, ptr) {
		right.put(right.search(units, ptr), e)
	} else {
		nd.put(nd.search(units, ptr), e)
	}
	left := nd
	for depth > 0 {
		depth--
		parent := path[depth]
		at := 1
		for parent.kids[at-1] != left {
			at++
		}
		if parent.n < fan {
			parent.putChild(at, right)
			return
		}
		sibling := s.splitNode(parent)
		if at > parent.n {
			sibling.putChild(at-parent.n, right)
		} else {
			parent.putChild(at, right)
		}
		left, right = parent, sibling
	}
	root := s.newNode(true)
	root.n = 2
	root.kids[0], root.keys[0] = left, left.keys[0]
	root.kids[1], root.keys[1] = right, right.keys[0]
	s.bins[b] = root
}

func (nd *node) put(i int, e entry) {
	copy(nd.keys[i+1:nd.n+1], nd.keys[i:nd.n])
	nd.keys[i] = e
	nd.n++
}

func (nd *node) putChild(i int, kid *node) {
	copy(nd.keys[i+1:nd.n+1], nd.keys[i:nd.n])
	copy(nd.kids[i+1:nd.n+1], nd.kids[i:nd.n])
	nd.keys[i], nd.kids[i] = kid.keys[0], kid
	nd.n++
}

// splitNode moves the upper half of nd into a new node. The caller sets the links of a leaf.
func (s *freeSet) splitNode(nd *node) *node {
	right := s.newNode(nd.kids != nil)
	half := nd.n / 2
	right.n = copy(right.keys[:], nd.keys[half:nd.n])
	if nd.kids != nil {
		copy(right.kids[:], nd.kids[half:nd.n])
		clear(nd.kids[half:nd.n])
	}
	nd.n = half
	return right
}

// removeTree removes an entry from the tree of its bin.
func (s *freeSet) removeTree(size int64, ptr uint64) bool {
	b := binOf(size)
	if s.bins == nil || s.bins[b] == nil {
		return false
	}
	nd := s.bins[b]
	units := uint64(size) / unit
	var path [maxDepth]*node
	depth := 0
	for nd.kids != nil {
		path[depth] = nd
		depth++
		nd = nd.kids[nd.child(units, ptr)]
	}
	i := nd.search(units, ptr)
	if i >= nd.n || nd.keys[i].word>>refBits != units || nd.keys[i].ptr != ptr {
		return false
	}
	s.n--
	nd.n--
	copy(nd.keys[i:nd.n], nd.keys[i+1:nd.n+1])
	if nd.n > 0 {
		return true
	}
	if depth == 0 {
		s.emptyBin(b)
		return true
	}
	if nd.prev != nil {
		nd.prev.next = nd.next
	}
	if nd.next != nil {
		nd.next.prev = nd.prev
	}
	for {
		depth--
		parent := path[depth]
		at := 0
		for parent.kids[at] != nd {
			at++
		}
		s.freeNode(nd)
		parent.n--
		copy(parent.keys[at:parent.n], parent.keys[at+1:parent.n+1])
		copy(parent.kids[at:parent.n], parent.kids[at+1:parent.n+1])
		parent.kids[parent.n] = nil
		if parent.n > 0 {
			break // a root has at least two children, so the path does not end before
		}
		nd = parent
	}
	for root := s.bins[b]; root.kids != nil && root.n == 1; root = s.bins[b] {
		s.bins[b] = root.kids[0]
		root.kids[0] = nil
		s.freeNode(root)
	}
	return true
}

func (s *freeSet) newNode(inner bool) *node {
	kind := 0
	if inner {
		kind = 1
	}
	if nd := s.spare[kind]; nd != nil {
		s.spare[kind] = nd.next
		nd.next = nil
		return nd
	}
	nd := &node{}
	if inner {
		nd.kids = new([fan]*node)
	}
	return nd
}

// emptyBin recycles the last node of a bin, a leaf without entries.
func (s *freeSet) emptyBin(b int) {
	s.used.Remove(b)
	s.freeNode(s.bins[b])
	s.bins[b] = nil
}

// dropSpare gives the recycled nodes to the garbage collector, and the bins if all are empty.
func (s *freeSet) dropSpare() {
	s.spare = [2]*node{}
	if s.used.Empty() {
		s.bins = nil
	}
}

func (s *freeSet) freeNode(nd *node) {
	kind := 0
	if nd.kids != nil {
		kind = 1
	}
	nd.n = 0
	nd.prev, nd.next = nil, s.spare[kind]
	s.spare[kind] = nd
}
