package pack

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
)

// A skyline builds packings from below. The floor of an era is the height below which no more buffers are placed. A run
// is a stretch of eras with one floor. The lowest run is filled first: a buffer is chosen among those that live within
// the run, and lies on its floor. If there is none, the floor rises to the lower one of the neighbors.
//
// The slack of an era is the room between the floor and the ceiling that its unplaced buffers do not need. A buffer on
// the floor leaves the slack as it is; a rising floor reduces it. So a run whose slack is used up has to be filled
// without a gap. An era where the floor rose too far gets a larger weight, and is filled earlier in later packings.
//
// Packing n buffers takes O(n log n), plus the eras and the buffers of the runs.
type skyline struct {
	items   []item
	first   []int32   // by buffer: its first era
	past    []int32   // by buffer: the era after its last
	order   []int32   // buffers by first era
	begin   []int32   // by era: position in order of the first buffer that begins there or later
	load    []int64   // by era: sum of sizes
	weight  []float64 // by era: 1 + the number of rises beyond its slack
	rank    []int32   // by buffer: place in the current order of preference
	offsets []int64   // by buffer

	rest    []int64 // by era: sum of the sizes of unplaced buffers
	next    []int32 // by position in order: a position at or before the next unplaced buffer
	fits    []int32 // by era of the current run: change of the number of buffers that fit
	inside  []int32 // unplaced buffers within the current run
	runs    runs
	ceiling int64
}

// A run is the eras [from, past), which have the same floor.
type run struct {
	from, past int32
	floor      int64
	low, high  *run // neighbors in time
	merged     bool // it belongs to another run now
}

// runs is a heap of runs. The lowest is first.
type runs []*run

func (h runs) Len() int { return len(h) }
func (h runs) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].floor, h[j].floor), cmp.Compare(h[i].from, h[j].from)) < 0
}
func (h runs) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runs) Push(x any)   { *h = append(*h, x.(*run)) }
func (h *runs) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}

// newSkyline returns nil if the lifetimes have more eras than a packing should take.
func newSkyline(buffers []Buffer, items []item) *skyline {
	first, last, k := eras(buffers)
	n := len(buffers)
	var lives int64
	for i := range buffers {
		lives += int64(last[i] - first[i] + 1)
	}
	if lives > skylineEras || n > math.MaxInt32/2 {
		return nil
	}
	s := &skyline{
		items: items, first: make([]int32, n), past: make([]int32, n), order: make([]int32, n),
		begin: make([]int32, k+1), load: make([]int64, k), weight: make([]float64, k), rank: make([]int32, n),
		offsets: make([]int64, n), rest: make([]int64, k), next: make([]int32, n+1), fits: make([]int32, k+1),
	}
	for i, b := range buffers {
		s.first[i], s.past[i], s.order[i] = int32(first[i]), int32(last[i]+1), int32(i)
		for t := first[i]; t <= last[i]; t++ {
			s.load[t] += b.Size
		}
	}
	slices.SortStableFunc(s.order, func(x, y int32) int { return cmp.Compare(s.first[x], s.first[y]) })
	at := int32(0)
	for t := range s.begin {
		for int(at) < n && int(s.first[s.order[at]]) < t {
			at++
		}
		s.begin[t] = at
	}
	for t := range s.weight {
		s.weight[t] = 1
	}
	return s
}

// skylineEras is the maximum number of eras in all lifetimes together. A packing subtracts from each of them.
const skylineEras = 1 << 30

// A choice is the rule for the era of a run that is filled first.
type choice int

const (
	byPreference choice = iota // any: the preferred buffer of the run
	byLeastSlack
	byFewestFits // the era where the fewest buffers fit, and fewer still if its slack is small
	choices
)

// build makes a packing that reaches above the ceiling only where the slack did not suffice. It reports whether ctx let
// it finish.
func (s *skyline) build(ctx context.Context, ceiling int64, prefer order, c choice) bool {
	s.ceiling = ceiling
	s.prefer(prefer)
	copy(s.rest, s.load)
	for i := range s.next {
		s.next[i] = int32(i)
	}
	s.runs = append(s.runs[:0], &run{past: int32(len(s.load))})
	for left := len(s.order); left > 0; {
		r := heap.Pop(&s.runs).(*run)
		if r.merged {
			continue
		}
		s.gather(r)
		if len(s.inside) == 0 {
			s.raise(r)
			continue
		}
		at := s.choose(r, c)
		i := s.order[at]
		s.offsets[i] = r.floor
		s.next[at] = at + 1
		s.place(r, i)
		if left--; left%64 == 0 && ctx.Err() != nil {
			return false
		}
	}
	return true
}

// prefer sets the ranks.
func (s *skyline) prefer(o order) {
	sorted := slices.Clone(s.order)
	slices.SortFunc(sorted, func(x, y int32) int { return cmp.Or(o(&s.items[x], &s.items[y]), cmp.Compare(x, y)) })
	for rank, i := range sorted {
		s.rank[i] = int32(rank)
	}
}

// unplaced returns the first position at or after at whose buffer is not placed.
func (s *skyline) unplaced(at int32) int32 {
	for s.next[at] != at {
		s.next[at] = s.next[s.next[at]]
		at = s.next[at]
	}
	return at
}

// gather finds the positions of the unplaced buffers that live within a run.
func (s *skyline) gather(r *run) {
	s.inside = s.inside[:0]
	for at := s.unplaced(s.begin[r.from]); int(at) < len(s.order); at = s.unplaced(at + 1) {
		i := s.order[at]
		if s.first[i] >= r.past {
			return
		}
		if s.past[i] <= r.past {
			s.inside = append(s.inside, at)
		}
	}
}

// choose returns the position of one of the buffers inside the run: the preferred one of the chosen era.
func (s *skyline) choose(r *run, c choice) int32 {
	era := int32(-1)
	if c != byPreference && len(s.inside) > 1 {
		era = s.chooseEra(r, c)
	}
	best := int32(-1)
	for _, at := range s.inside {
		i := s.order[at]
		if era >= 0 && (s.first[i] > era || s.past[i] <= era) {
			continue
		}
		if best < 0 || s.rank[i] < s.rank[s.order[best]] {
			best = at
		}
	}
	return best
}

// chooseEra returns the era of the run, among those where a buffer fits, that is filled first.
func (s *skyline) chooseEra(r *run, c choice) int32 {
	clear(s.fits[r.from : r.past+1])
	for _, at := range s.inside {
		i := s.order[at]
		s.fits[s.first[i]]++
		s.fits[s.past[i]]--
	}
	era, least, fits := int32(-1), 0.0, 0.0
	for t := r.from; t < r.past; t++ {
		fits += float64(s.fits[t])
		if fits == 0 {
			continue
		}
		slack := float64(max(0, s.ceiling-r.floor-s.rest[t]))
		key := slack + fits
		if c == byFewestFits {
			key = fits * (1 + 100*slack/float64(s.ceiling))
		}
		if key /= s.weight[t]; era < 0 || key < least {
			era, least = t, key
		}
	}
	return era
}

// raise raises the floor of a run, in which no buffer fits, to the lower one of its neighbors.
func (s *skyline) raise(r *run) {
	floor := int64(math.MaxInt64)
	for _, o := range []*run{r.low, r.high} {
		if o != nil {
			floor = min(floor, o.floor)
		}
	}
	for t := r.from; t < r.past; t++ {
		if s.rest[t] > 0 && floor > s.ceiling-s.rest[t] {
			s.weight[t]++
		}
	}
	r.floor = floor
	s.push(r)
}

// place puts buffer i on the floor of a run, which becomes up to three runs.
func (s *skyline) place(r *run, i int32) {
	size := s.items[i].Size
	first, past := s.first[i], s.past[i]
	for t := first; t < past; t++ {
		s.rest[t] -= size
	}
	for _, part := range [][2]int32{{r.from, first}, {past, r.past}} {
		if part[0] == part[1] {
			continue
		}
		o := &run{from: part[0], past: part[1], floor: r.floor}
		if part[0] == r.from {
			o.low, o.high, r.low = r.low, r, o
			if o.low != nil {
				o.low.high = o
			}
		} else {
			o.low, o.high, r.high = r, r.high, o
			if o.high != nil {
				o.high.low = o
			}
		}
		heap.Push(&s.runs, o)
	}
	r.from, r.past = first, past
	r.floor += size
	s.push(r)
}

// push adds a run to the heap, and takes in neighbors with the same floor.
func (s *skyline) push(r *run) {
	if o := r.low; o != nil && o.floor == r.floor {
		o.merged = true
		r.from, r.low = o.from, o.low
		if r.low != nil {
			r.low.high = r
		}
	}
	if o := r.high; o != nil && o.floor == r.floor {
		o.merged = true
		r.past, r.high = o.past, o.high
		if r.high != nil {
			r.high.low = r
		}
	}
	heap.Push(&s.runs, r)
}
