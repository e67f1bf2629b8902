package host

import (
	"github.com/ashlar-go/ashlar/dtype"
)

// A found is an element and its index along the axis.
type found[T number] struct {
	value T
	at    int64
}

// argReducerOf returns the reducer that finds the first of the greatest or least elements.
func argReducerOf(least bool, d dtype.DType) (r reducer, ok bool) {
	switch d {
	case dtype.Bool, dtype.Uint8:
		return finder[uint8](least, d), true
	case dtype.Int8:
		return finder[int8](least, d), true
	case dtype.Int16:
		return finder[int16](least, d), true
	case dtype.Int32:
		return finder[int32](least, d), true
	case dtype.Int64:
		return finder[int64](least, d), true
	case dtype.Uint16:
		return finder[uint16](least, d), true
	case dtype.Uint32:
		return finder[uint32](least, d), true
	case dtype.Uint64:
		return finder[uint64](least, d), true
	case dtype.Float16, dtype.BFloat16, dtype.Float32:
		return finder[float32](least, dtype.Float32), true
	case dtype.Float64:
		return finder[float64](least, d), true
	}
	return reducer{}, false
}

// finder starts with the worst element at index 0, where it is right if nothing is better.
func finder[T number](lowest bool, d dtype.DType) reducer {
	better, none := greater[T], least[T]()
	if lowest {
		better, none = less[T], greatest[T]()
	}
	return fold[T, found[T], int64]{
		none: found[T]{value: none},
		line: func(f found[T], x []T, at int) found[T] {
			for i, v := range x {
				if better(v, f.value) {
					f = found[T]{v, int64(at + i)}
				}
			}
			return f
		},
		rows: func(acc []found[T], x []T, at int) {
			for i := range acc {
				if better(x[i], acc[i].value) {
					acc[i] = found[T]{x[i], int64(at)}
				}
			}
		},
		merge: func(a, b found[T]) found[T] {
			if better(b.value, a.value) {
				return b
			}
			return a
		},
		value: func(f found[T]) int64 { return f.at },
	}.reducer(d, dtype.Int64)
}

// greater and less say whether v comes before the best so far: NaN before all others, nothing before NaN.
func greater[T number](v, best T) bool { return v > best || v != v && best == best }

func less[T number](v, best T) bool { return v < best || v != v && best == best }
