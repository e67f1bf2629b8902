package holders

import (
	"cmp"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/trace"
)

// Limits of the search for repetitions.
const (
	maxWindow     = 100_000 // requests that are looked at
	maxCandidates = 48
	leastCoverage = 0.4 // part of the requests that must repeat
	leastOnce     = 2   // kinds that must occur once in each step
)

// A kind of request is what repeats: requests of the same code or, without stacks, of the same size.
type requestKind struct {
	stack  trace.StackID
	size   int64 // 0 with a stack
	stream uint32
}

// A repetition is a search for the requests that repeat. Its window is the later half of the requests, because the
// first steps of a program differ from the others.
type repetition struct {
	h        *History
	blocks   *trace.LifetimesReader
	requests *requestSet // their blocks
	kinds    []int32     // of the requests of the window
	num      int         // of kinds
	from     int         // the first request of the window
	median   int         // requests between two starts
}

// repetitions returns the steps that the requests show.
func (h *History) repetitions() (s Steps) {
	r := newRepetition(h)
	s.Source, s.Inferred = "the repetition of the requests", true
	valleys := r.valleys(r.markers())
	for n, i := range valleys {
		step := Step{Number: n + 1, First: r.start(i), Last: h.Trace.Len() - 1}
		requests := r.requests.n - i
		if n+1 < len(valleys) {
			step.Last = r.start(valleys[n+1]) - 1
		} else if requests < r.median/2 {
			break // the end of the program, or the beginning of a step that failed
		}
		step.Partial = n+1 == len(valleys) && requests < r.median*9/10
		s.List = append(s.List, step)
	}
	return s
}

func newRepetition(h *History) *repetition {
	r := &repetition{
		h: h, blocks: h.Lifetimes.Reader(trace.FieldStack, trace.FieldSize, trace.FieldStream),
		requests: newRequestSet(h.NumBlocks()),
	}
	r.collect()
	r.from = max(r.requests.n/2, r.requests.n-maxWindow)
	numbers := map[requestKind]int32{}
	request := 0
	r.kinds = make([]int32, 0, r.requests.n-r.from)
	for i := range h.NumBlocks() {
		if !r.requests.has(i) {
			continue
		}
		kind := r.kindOf(i)
		n, ok := numbers[kind]
		if !ok {
			n = int32(len(numbers))
			numbers[kind] = n
		}
		if request++; request > r.from {
			r.kinds = append(r.kinds, n)
		}
	}
	r.num = len(numbers)
	return r
}

// collect finds the blocks that are requests. Without a stack, they are of the backward pass, in a thread without
// Python, if others have stacks.
func (r *repetition) collect() {
	stacks := 0
	for i := range r.h.NumBlocks() {
		if r.blocks.At(i).Stack != 0 {
			stacks++
		}
	}
	for i := range r.h.NumBlocks() {
		if b := r.blocks.At(i); b.Recorded && (b.Stack != 0 || 5*stacks <= r.h.NumBlocks()) {
			r.requests.add(i)
		}
	}
}

// kindOf returns the kind of the request of a block.
func (r *repetition) kindOf(block int) requestKind {
	b := r.blocks.At(block)
	kind := requestKind{b.Stack, 0, b.Stream}
	if b.Stack == 0 {
		kind.size = b.Size
	}
	return kind
}

// start returns the event of a request.
func (r *repetition) start(request int) int { return r.h.Lifetimes.Start(r.requests.at(request)) }

// markers returns requests of one kind, ascending, of which each step has one. It is empty if nothing repeats.
func (r *repetition) markers() []int {
	counts := make([]int, r.num)
	for _, kind := range r.kinds {
		counts[kind]++
	}
	type result struct {
		marker   int32
		coverage float64
	}
	var results []result
	best := 0.0
	for _, marker := range r.candidates(counts) {
		if coverage, once := r.coverage(marker); len(once) >= leastOnce {
			results = append(results, result{marker, coverage})
			best = max(best, coverage)
		}
	}
	if best < leastCoverage {
		return nil
	}
	// The shortest period that explains nearly as much as any: two steps repeat as well as one.
	results = slices.DeleteFunc(results, func(x result) bool { return x.coverage < 0.9*best })
	found := slices.MaxFunc(results, func(a, b result) int { return cmp.Compare(counts[a.marker], counts[b.marker]) })
	return r.extend(r.positions(found.marker))
}

// candidates returns the kinds that may occur once in each step: for each number of occurrences, the most regular kind.
// The numbers that cover the most requests come first.
func (r *repetition) candidates(counts []int) []int32 {
	type group struct {
		marker     int32
		regularity float64
		requests   int
	}
	last := make([]int, r.num)
	longest := make([]int, r.num)
	for i := range last {
		last[i] = -1
	}
	for i, kind := range r.kinds {
		if last[kind] >= 0 {
			longest[kind] = max(longest[kind], i-last[kind])
		}
		last[kind] = i
	}
	groups := map[int]*group{}
	for kind, n := range counts {
		if n < 3 {
			continue
		}
		// The longest distance as a multiple of the mean: 1 is the most regular.
		regularity := float64(longest[kind]) * float64(n)
		g := groups[n]
		if g == nil {
			g = &group{int32(kind), regularity, 0}
			groups[n] = g
		}
		g.requests += n
		if regularity < g.regularity {
			g.marker, g.regularity = int32(kind), regularity
		}
	}
	list := make([]*group, 0, len(groups))
	for _, g := range groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(a.marker, b.marker))
	})
	var markers []int32
	for _, g := range list[:min(len(list), maxCandidates)] {
		markers = append(markers, g.marker)
	}
	return markers
}

// positions returns the requests of a kind in the window.
func (r *repetition) positions(kind int32) (at []int) {
	for i, other := range r.kinds {
		if other == kind {
			at = append(at, r.from+i)
		}
	}
	return at
}

// coverage returns the part of the window's requests whose kinds occur equally often between each two successive
// requests of a marker, with one exception in ten. Once are those that occur once.
func (r *repetition) coverage(marker int32) (part float64, once []int32) {
	at := r.positions(marker)
	n := len(at) - 1
	counts := make([][2]int32, r.num) // of each kind, in the current interval and in the one before
	same, total := make([]int32, r.num), make([]int32, r.num)
	several := make([]bool, r.num)
	seen := make([]int32, r.num) // the last interval with the kind, plus 1
	for interval := range n {
		kinds := r.kinds[at[interval]-r.from : at[interval+1]-r.from]
		for _, kind := range kinds {
			if int(seen[kind]) != interval+1 {
				counts[kind][1] = counts[kind][0]
				if int(seen[kind]) != interval {
					counts[kind][1] = 0
				}
				counts[kind][0], seen[kind] = 0, int32(interval+1)
			}
			counts[kind][0]++
			total[kind]++
		}
		for _, kind := range kinds {
			if c := &counts[kind]; similar(c[0], c[1]) {
				same[kind]++
				c[1] = -1 // counted
			}
			several[kind] = several[kind] || counts[kind][0] > 1
		}
	}
	covered := 0
	for kind := range same {
		if 10*int(same[kind]) < 9*(n-1) || n < 2 {
			continue
		}
		covered += int(total[kind])
		if !several[kind] {
			once = append(once, int32(kind))
		}
	}
	return float64(covered) / float64(len(r.kinds)), once
}

// similar reports whether two numbers of requests differ by at most a quarter.
func similar(a, b int32) bool { return min(a, b) > 0 && 4*(max(a, b)-min(a, b)) <= max(a, b) }

// extend adds the markers before the window: earlier requests of the same kind at about the same distances.
func (r *repetition) extend(at []int) []int {
	distances := make([]int, len(at)-1)
	for i := range distances {
		distances[i] = at[i+1] - at[i]
	}
	slices.Sort(distances)
	r.median = distances[len(distances)/2]
	block := r.requests.at(at[0])
	kind, first := r.kindOf(block), at[0]
	var earlier []int
	for i := first - 1; i >= 0 && first-i <= 2*r.median; i-- {
		for block--; !r.requests.has(block); block-- {
		}
		if first-i >= r.median/2 && r.kindOf(block) == kind {
			earlier = append(earlier, i)
			first = i
		}
	}
	slices.Reverse(earlier)
	return append(earlier, at...)
}

// valleys returns the requests that begin the steps. Before each is the least memory: between two markers, usually at
// the same distance from the first of them. A step may differ, in particular the first one, so the search is near that
// distance.
func (r *repetition) valleys(markers []int) (at []int) {
	if len(markers) == 0 {
		return nil
	}
	distances := make([]int, len(markers)-1)
	for i := range distances {
		distances[i] = r.valley(markers[i], markers[i+1]) - markers[i]
	}
	slices.Sort(distances)
	distance, near := distances[len(distances)/2], max(r.median/8, 1)
	for _, marker := range append([]int{markers[0] - r.median}, markers...) {
		from, to := max(marker+distance-near, 0), min(marker+distance+near, r.requests.n)
		if n := len(at); n > 0 {
			from = max(from, at[n-1]+1)
		} else {
			from = max(marker+distance, 0) // while a program is set up, less memory is active
		}
		if from < to && marker+distance < r.requests.n {
			at = append(at, r.valley(from, to))
		}
	}
	return at
}

// valley returns the last request from from to to-1 with the least memory before it.
func (r *repetition) valley(from, to int) int {
	best, least := from, int64(math.MaxInt64)
	for i := from; i < to; i++ {
		if bytes := r.h.ActiveBytes(r.start(i) - 1); bytes <= least {
			best, least = i, bytes
		}
	}
	return best
}
