// Package fit places spans in a range of integers, such as addresses. It accesses no memory.
//
// A FirstFit places spans online: it keeps the free spans, called holes, and Take takes the lowest hole that is large
// enough. A span that is given back next to a hole becomes part of it.
//
// A FirstFit is deterministic: the same calls give the same results. All calls take O(log n) for n holes, except those
// that visit every hole. A FirstFit must not be used by several goroutines at once.
//
// Package pack packs a known workload offline.
package fit

import "fmt"

// The holes are the entries of the leaves of a B+ tree, sorted by their starts. An entry of an inner node has the least
// start and the greatest room of the subtree below it. So the first and the last hole that are large enough, and the
// hole at an integer, are found on one path from the root. The room of a hole is its size from its first multiple of
// the unit on, so a hole that is too small only because of its alignment needs no second check.
//
//	entry of a node  = (least start, greatest room) of its subtree
//	Free             = sum of the holes' sizes
//	any two holes    do not touch

// A Span is the integers [At, At+Size).
type Span struct {
	At, Size int64
}

// End returns the first integer after the span.
func (s Span) End() int64 { return s.At + s.Size }

// String returns the span as a half-open interval.
func (s Span) String() string { return fmt.Sprintf("[%d,%d)", s.At, s.End()) }
