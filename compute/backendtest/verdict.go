package backendtest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/dtype"
)

// exactly wants the bytes that want returns.
func exactly(d dtype.DType, want func(i int) []byte) verdict {
	return func(i int, got []byte) string {
		if w := want(i); !bytes.Equal(got, w) {
			return text(d, w)
		}
		return ""
	}
}

// integers wants integers, or of Bool 0 and 1; what want returns is wrapped.
func integers(d dtype.DType, want func(i int) int64) verdict {
	b := make([]byte, d.Size())
	return exactly(d, func(i int) []byte {
		putBits(b, uint64(want(i)))
		return b
	})
}

// truths wants 0 and 1, of Bool.
func truths(want func(i int) bool) verdict {
	return integers(dtype.Bool, func(i int) int64 { return truth(want(i)) })
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// An answer is a number and how far off a result may be before it is rounded to its type, and other results, as they
// are stored, that are as good.
type answer struct {
	value, tolerance float64
	others           []float64
}

// near wants what want returns, rounded to d: any NaN for NaN, and zeros with their sign if it is exact.
func near(d dtype.DType, want func(i int) answer) verdict {
	f := formats[d]
	return func(i int, b []byte) string {
		got, w := f.decode(bits(b)), want(i)
		if f.accepts(got, w) {
			return ""
		}
		if w.tolerance == 0 {
			return fmt.Sprint(f.round(w.value))
		}
		return fmt.Sprintf("%v, %v at most off: from %v to %v", w.value, w.tolerance, f.round(w.value-w.tolerance),
			f.round(w.value+w.tolerance))
	}
}

// accepts reports whether got is what a has become by rounding.
func (f format) accepts(got float64, a answer) bool {
	for _, other := range a.others {
		if got == other || math.IsNaN(got) && math.IsNaN(other) {
			return true
		}
	}
	if math.IsNaN(a.value) || math.IsNaN(got) {
		return math.IsNaN(a.value) && math.IsNaN(got)
	}
	if math.IsInf(a.value, 0) {
		return got == a.value
	}
	if a.tolerance == 0 {
		want := f.round(a.value)
		return got == want && (want != 0 || math.Signbit(got) == math.Signbit(want))
	}
	return f.round(a.value-a.tolerance) <= got && got <= f.round(a.value+a.tolerance)
}

// exact is an answer without tolerance.
func exact(v float64) answer { return answer{value: v} }

// within is an answer that may be ulps units in the last place of f off. An answer of 0 is exact: where a function is
// 0, or too small for a float64, there is nothing to be off by.
func within(f format, v, ulps float64) answer {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return exact(v)
	}
	return answer{value: v, tolerance: ulps * f.ulp(v)}
}

// anyZero is 0 of either sign.
var anyZero = answer{others: []float64{0}}
