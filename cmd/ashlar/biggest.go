package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A biggest counts the largest requested sizes, by size and stack.
type biggest struct {
	sizes  []int64 // the maxBiggest largest, ascending
	least  int64   // that counts
	counts map[allocation]int
}

type allocation struct {
	size  int64
	stack trace.StackID
}

// add counts an entry.
func (b *biggest) add(e *trace.Event) {
	if e.Action == mem.ActionAlloc && e.Size >= b.least {
		b.count(allocation{e.Size, e.Stack})
	}
}

// count counts an allocation of one of the largest sizes so far.
func (b *biggest) count(a allocation) {
	if b.counts == nil {
		b.counts = map[allocation]int{}
	}
	if at, known := slices.BinarySearch(b.sizes, a.size); !known {
		b.sizes = slices.Insert(b.sizes, at, a.size)
	}
	if len(b.sizes) > maxBiggest {
		for other := range b.counts {
			if other.size == b.sizes[0] {
				delete(b.counts, other)
			}
		}
		b.sizes = slices.Delete(b.sizes, 0, 1)
	}
	if len(b.sizes) == maxBiggest {
		b.least = b.sizes[0]
	}
	b.counts[a]++
}

// list returns the largest sizes, by size and source position. Numbers replace those of the entries.
func (b *biggest) list(t *trace.Trace, numbers trace.Numbers) (list []bigAllocation) {
	frames, lines := holders.NewFrames(t.Stacks), map[trace.StackID]string{}
	merged := map[bigAllocation]int{}
	for k, n := range b.counts {
		e := trace.Event{Stack: k.stack}
		if numbers.Stacks != nil {
			e.Stack = numbers.Stacks[k.stack]
		}
		if _, known := lines[e.Stack]; !known {
			lines[e.Stack] = frames.Line(e.Stack)
		}
		merged[bigAllocation{Size: k.size, Where: lines[e.Stack]}] += n
	}
	for b, n := range merged {
		b.Count = n
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b bigAllocation) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.Count, a.Count), strings.Compare(a.Where, b.Where))
	})
	return list[:min(len(list), maxBiggest)]
}
