package trace

// A LifetimesReader reads blocks. It is quick for blocks in ascending or descending order. Not safe
// for concurrent use.
type LifetimesReader struct {
	l      *Lifetimes
	events *Reader
}

// Reader returns a reader of some fields of the blocks, or of all if none are named: FieldSize, FieldPtr, FieldStack,
// FieldMetadata (Lifetime.Tag), FieldStream and FieldPool. Except for the
// events, other fields may have any value.
// Fewer fields are quicker.
func (l *Lifetimes) Reader(fields ...Field) *LifetimesReader {
	return &LifetimesReader{l, l.trace.Reader(fields...)}
}

// At returns the lifetime of a block.
func (r *LifetimesReader) At(i int) Lifetime {
	odd := r.l.oddAt(i)
	if odd != nil && !odd.Recorded {
		return *odd
	}
	return r.l.recorded(i, r.events.At(r.l.Start(i)), odd)
}
