// Package owners records whose bytes lie where in a piece of memory.
package owners

import (
	"cmp"
	"math/bits"
	"slices"
)

// An ID names the owner of bytes.
type ID uint64

const (
	Unknown ID = iota // bytes of an unknown owner
	Fresh             // memory that the device has just allocated: bytes of an unknown owner, and no work uses them
	First             // the first ID that names an owner
)

// Memory records the owner of each byte of a piece of memory. It locks nothing.
//
// The memory is divided into chunks of equal size, so that a change costs no more than the ranges of one chunk, however
// large the memory is.
type Memory struct {
	size   int64
	shift  uint // of the size of a chunk
	chunks []chunk
}

// A chunk belongs to one owner, or to the owners of its parts.
type chunk struct {
	owner ID
	parts []part // ascending, at least two, neighbours differ; nil: all is owner's
}

// A part ends at an offset in its chunk and begins at the end of the part before it.
type part struct {
	end   int64
	owner ID
}

const (
	minShift  = 21 // chunks of 2 MiB, unless
	maxChunks = 16 // there were more than 2^maxChunks
)

// New returns size bytes of memory of one owner.
func New(size int64, owner ID) *Memory {
	m := &Memory{size: size, shift: max(minShift, uint(max(bits.Len64(uint64(size))-maxChunks, 0)))}
	m.chunks = make([]chunk, (size+1<<m.shift-1)>>m.shift)
	m.Reset(owner)
	return m
}

// Reset gives all bytes to one owner.
func (m *Memory) Reset(owner ID) {
	for i := range m.chunks {
		m.chunks[i] = chunk{owner: owner}
	}
}

// Claim gives the bytes [from, to) to an owner. It calls foreign for each range that had another owner, ascending.
func (m *Memory) Claim(from, to int64, owner ID, foreign func(from, to int64, was ID)) {
	for from < to {
		i := from >> m.shift
		base := i << m.shift
		end := min(to, base+1<<m.shift)
		c := &m.chunks[i]
		if c.parts != nil || c.owner != owner {
			c.claim(from-base, end-base, min(m.size-base, 1<<m.shift), owner,
				func(from, to int64, was ID) { foreign(base+from, base+to, was) })
		}
		from = end
	}
}

// claim is Claim for a chunk of size bytes.
func (c *chunk) claim(from, to, size int64, owner ID, foreign func(from, to int64, was ID)) {
	if c.parts == nil {
		if c.owner == owner {
			return
		}
		c.parts = []part{{size, c.owner}}
	}
	lo, _ := slices.BinarySearchFunc(c.parts, from+1, func(p part, at int64) int { return cmp.Compare(p.end, at) })
	hi, changed := lo, false
	for at := from; at < to; hi++ {
		p := c.parts[hi]
		end := min(p.end, to)
		if p.owner != owner {
			changed = true
			foreign(at, end, p.owner)
		}
		at = end
	}
	if changed {
		c.replace(lo, hi, from, to, owner)
	}
	if len(c.parts) == 1 {
		*c = chunk{owner: c.parts[0].owner}
	}
}

// replace makes [from, to), which meets the parts with the indices [lo, hi), one part. It joins neighbours of one
// owner.
func (c *chunk) replace(lo, hi int, from, to int64, owner ID) {
	var is [3]part
	n := 0
	add := func(end int64, owner ID) {
		if n > 0 && is[n-1].owner == owner {
			n--
		}
		is[n] = part{end, owner}
		n++
	}
	first, last, start := c.parts[lo], c.parts[hi-1], int64(0)
	if lo > 0 {
		start = c.parts[lo-1].end
	}
	if start < from {
		add(from, first.owner)
	} else if lo > 0 && c.parts[lo-1].owner == owner {
		lo--
	}
	add(to, owner)
	if last.end > to {
		add(last.end, last.owner)
	} else if hi < len(c.parts) && c.parts[hi].owner == owner {
		add(c.parts[hi].end, owner)
		hi++
	}
	c.parts = slices.Replace(c.parts, lo, hi, is[:n]...)
}
