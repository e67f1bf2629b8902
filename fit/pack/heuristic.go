package pack

import (
	"cmp"
	"math/bits"
	"slices"
)

// An extent is the units [at, end).
type extent struct{ at, end int64 }

// covered is a set of units: extents that neither overlap nor touch, upwards.
type covered []extent

// add adds the units of e to the set, which may contain some already.
func (c *covered) add(e extent) {
	s := *c
	i, _ := slices.BinarySearchFunc(s, e.at, func(x extent, at int64) int { return cmp.Compare(x.end, at) })
	j := i
	for j < len(s) && s[j].at <= e.end {
		j++
	}
	if i == j {
		*c = slices.Insert(s, i, e)
		return
	}
	s[i] = extent{min(s[i].at, e.at), max(s[j-1].end, e.end)}
	*c = slices.Delete(s, i+1, j)
}

// An occupancy holds the placed buffers. It finds the units that are taken during a lifetime without examining each
// buffer.
//
// Time is cut into eras. An era consists of consecutive begins of buffers, followed by consecutive ends. The buffers
// that are alive at its first end are alive in it. Two buffers overlap in time if and only if they share an era.
//
// The eras are the leaves of a binary tree. A buffer's lifetime consists of O(log n) whole subtrees. A node has two
// sets: "through", the units of the buffers with this subtree in their lifetime, and "below", the units of all buffers
// that are alive somewhere in the subtree. The units taken during a lifetime are in "below" of its own subtrees and in
// "through" of the nodes above them. The sets that a buffer reads and writes are fixed; sets that no buffer reads are
// not kept.
type occupancy struct {
	buffers       []Buffer
	sets          []covered // 2v is below node v, 2v+1 is through it
	reads, writes [][]int32 // by buffer: indices of sets
	open          []cursor  // of the current buffer
	visits        int64     // extents examined; opening a set or adding to it counts as setVisits
}

// setVisits is the approximate cost of opening a set, which is elsewhere in memory, as a number of examined extents.
const setVisits = 4

// A cursor is a set with a position: the extents before it are done.
type cursor struct {
	set  covered
	next int
}

func newOccupancy(buffers []Buffer) *occupancy {
	first, last, n := eras(buffers)
	leaves := 1 << bits.Len(uint(n)) // more than n: 1 for none
	s := &occupancy{
		buffers: buffers,
		sets:    make([]covered, 4*leaves),
		reads:   make([][]int32, len(buffers)),
		writes:  make([][]int32, len(buffers)),
	}
	read := make([]bool, len(s.sets))
	for i := range buffers {
		s.lifetime(i, first[i]+leaves, last[i]+leaves+1)
		for _, set := range s.reads[i] {
			read[set] = true
		}
	}
	for i := range buffers {
		s.writes[i] = slices.DeleteFunc(s.writes[i], func(set int32) bool { return !read[set] })
	}
	return s
}

// lifetime computes the sets that buffer i, which is alive in the leaves [l, r), reads and writes. The nodes above its
// subtrees lie on two paths to the root: above the first subtree at the left, and above the first at the right.
func (s *occupancy) lifetime(i, l, r int) {
	depth := bits.Len(uint(r))
	reads, writes := make([]int32, 0, 4*depth), make([]int32, 0, 6*depth)
	subtree := func(v int) {
		reads = append(reads, int32(2*v))
		writes = append(writes, int32(2*v), int32(2*v+1))
	}
	left, right := 0, 0
	for ; l < r; l, r = l/2, r/2 {
		if l&1 == 1 {
			subtree(l)
			left = max(left, l/2)
			l++
		}
		if r&1 == 1 {
			r--
			subtree(r)
			right = max(right, r/2)
		}
	}
	for left > 0 || right > 0 {
		v := max(left, right) // the numbers of nodes grow downwards
		reads = append(reads, int32(2*v+1))
		writes = append(writes, int32(2*v))
		if left == v {
			left /= 2
		}
		if right == v {
			right /= 2
		}
	}
	slices.Sort(reads)
	slices.Sort(writes)
	s.reads[i], s.writes[i] = reads, writes
}

// eras returns the first and the last era of each buffer, and the number of eras.
func eras(buffers []Buffer) (first, last []int, n int) {
	begins := make([]int, len(buffers))
	for i := range begins {
		begins[i] = i
	}
	ends := slices.Clone(begins)
	slices.SortFunc(begins, func(x, y int) int { return cmp.Compare(buffers[x].Lower, buffers[y].Lower) })
	slices.SortFunc(ends, func(x, y int) int { return cmp.Compare(buffers[x].Upper, buffers[y].Upper) })
	first, last = make([]int, len(buffers)), make([]int, len(buffers))
	for k, i := range begins {
		if k > 0 && buffers[ends[0]].Upper <= buffers[i].Lower {
			n++ // these ends conclude era n
			for buffers[ends[0]].Upper <= buffers[i].Lower {
				last[ends[0]] = n - 1
				ends = ends[1:]
			}
		}
		first[i] = n
	}
	for _, i := range ends {
		last[i] = n
	}
	return first, last, n + 1
}

// clear removes all buffers from the occupancy.
func (s *occupancy) clear() {
	for i := range s.sets {
		s.sets[i] = s.sets[i][:0]
	}
}

// put places buffer i at an offset that is free during its lifetime.
func (s *occupancy) put(i int, at int64) {
	e := extent{at, at + s.buffers[i].Size}
	s.visits += int64(setVisits * len(s.writes[i]))
	for _, set := range s.writes[i] {
		s.sets[set].add(e)
	}
}

// firstFit returns the lowest offset for buffer i.
func (s *occupancy) firstFit(i int) int64 {
	s.begin(i)
	return s.rise(0, s.buffers[i].Size)
}

// bestFit returns the offset for buffer i in the tightest gap; of equal gaps it takes the lowest. It uses the space
// above all buffers only if no gap is large enough.
func (s *occupancy) bestFit(i int) int64 {
	s.begin(i)
	size := s.buffers[i].Size
	best, least := int64(-1), int64(-1)
	for at := s.rise(0, size); ; {
		end := s.above()
		if end < 0 {
			if best < 0 {
				best = at
			}
			return best
		}
		if best < 0 || end-at < least {
			best, least = at, end-at
		}
		at = s.rise(end, size)
	}
}

func (s *occupancy) begin(i int) {
	s.open = s.open[:0]
	s.visits += int64(setVisits * len(s.reads[i]))
	for _, set := range s.reads[i] {
		if len(s.sets[set]) > 0 {
			s.open = append(s.open, cursor{set: s.sets[set]})
		}
	}
}

// rise returns the lowest offset at or above at where size units are free in all open sets.
func (s *occupancy) rise(at, size int64) int64 {
	for i, quiet := 0, 0; quiet < len(s.open); i++ {
		s.visits++
		if i == len(s.open) {
			i = 0
		}
		c, from := &s.open[i], at
		for c.next < len(c.set) && c.set[c.next].at < at+size {
			at = max(at, c.set[c.next].end)
			c.next++
			s.visits++
		}
		if quiet++; at != from {
			quiet = 1
		}
	}
	return at
}

// above returns the end of the gap that rise found, or -1 if the gap has no end.
func (s *occupancy) above() int64 {
	end := int64(-1)
	for _, c := range s.open {
		if c.next < len(c.set) && (end < 0 || c.set[c.next].at < end) {
			end = c.set[c.next].at
		}
	}
	return end
}
