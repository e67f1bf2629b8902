package holders

import (
	"iter"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
)

// maxChunk is the maximum number of segments of a chunk.
const maxChunk = 512

// A segmentList holds segments that do not overlap, by address, in chunks, none of which is empty. So a recording with
// a million segments takes no longer for each than a small one.
type segmentList struct {
	chunks [][]Segment
}

// first returns the position of the first segment that ends after p. After the last one, the chunk is len(chunks).
func (l *segmentList) first(p driver.Pointer) (chunk, at int) {
	chunk = sort.Search(len(l.chunks), func(i int) bool {
		return l.chunks[i][len(l.chunks[i])-1].stop() > p
	})
	if chunk < len(l.chunks) {
		at = sort.Search(len(l.chunks[chunk]), func(i int) bool { return l.chunks[chunk][i].stop() > p })
	}
	return chunk, at
}

// insert adds a segment.
func (l *segmentList) insert(s Segment) {
	chunk, at := l.first(s.Ptr)
	switch {
	case len(l.chunks) == 0:
		l.chunks = [][]Segment{{s}}
		return
	case chunk == len(l.chunks):
		chunk--
		at = len(l.chunks[chunk])
	}
	c := slices.Insert(l.chunks[chunk], at, s)
	l.chunks[chunk] = c
	if half := len(c) / 2; len(c) > maxChunk {
		l.chunks[chunk] = c[:half:half]
		l.chunks = slices.Insert(l.chunks, chunk+1, slices.Clone(c[half:]))
	}
}

// take removes and returns the first segment that shares an address with a range.
func (l *segmentList) take(ptr, stop driver.Pointer) (s Segment, ok bool) {
	chunk, at := l.first(ptr)
	if chunk == len(l.chunks) || l.chunks[chunk][at].Ptr >= stop {
		return Segment{}, false
	}
	s = l.chunks[chunk][at]
	if l.chunks[chunk] = slices.Delete(l.chunks[chunk], at, at+1); len(l.chunks[chunk]) == 0 {
		l.chunks = slices.Delete(l.chunks, chunk, chunk+1)
	}
	return s, true
}

// all returns the segments by address.
func (l *segmentList) all() iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		for _, chunk := range l.chunks {
			for _, s := range chunk {
				if !yield(s) {
					return
				}
			}
		}
	}
}
