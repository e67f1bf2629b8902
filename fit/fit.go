// Package fit places spans in a range of integers, such as addresses. It accesses no memory.
//
// A FirstFit places spans online: it keeps the free spans, called holes, and Take takes the lowest hole that is large
// enough. A span that is given back next to a hole becomes part of it.
//
// # Structure
//
// The holes are the leaves' entries of a B+ tree in the order of their starts. An entry of an inner node has, of the
// subtree below it, the lowest start and the greatest room, so that the first hole that is large enough, and the last,
// are found on one way down, as is the hole at an integer. Room is what a hole has from its first multiple of the unit
// on: a hole that fits by its size but not by its alignment costs no second look. All calls take O(log n) for n holes,
// but those that visit every hole.
//
//	a node's entry   = (least start, greatest room) of what is below it
//	Free             = sum of the holes' sizes
//	any two holes    do not touch
//
// It is deterministic: the same calls give the same results. A FirstFit is for one goroutine at a time.
//
// The packing of a known workload is package pack.
package fit

import "fmt"

// A Span is the integers [At, At+Size).
type Span struct {
	At, Size int64
}

// End is the first integer after the span.
func (s Span) End() int64 { return s.At + s.Size }

// String writes the span as a half-open interval.
func (s Span) String() string { return fmt.Sprintf("[%d,%d)", s.At, s.End()) }
