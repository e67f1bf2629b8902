package tensor

import (
	"math"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/dtype"
)

// numpyWords returns the elements in NumPy's form.
func numpyWords(e *excerpt, o PrintOptions) []string {
	if !e.dtype.IsFloat() && !e.dtype.IsComplex() {
		words, width := e.exact()
		if e.dtype == dtype.Bool && len(e.shape) > 0 {
			width = len("False")
		}
		for i, word := range words {
			words[i] = pad(word, width)
		}
		return words
	}
	re, im := e.floats()
	words := make([]string, len(re))
	f := newNumPyFloats(re, e.component(), false, o)
	for i, x := range re {
		words[i] = f.word(x)
	}
	if !e.dtype.IsComplex() {
		return words
	}
	g := newNumPyFloats(im, e.component(), true, o)
	for i, x := range im {
		word := g.word(x)
		number := strings.TrimRight(word, " ")
		words[i] += number + "j" + word[len(number):]
	}
	return words
}

// numpyFloats formats the floats of one array in NumPy's form, with aligned points.
type numpyFloats struct {
	dtype     dtype.DType
	plus      bool // non-negative numbers have a sign too
	precision int  // digits after the point; with exponents all numbers have as many
	exponents bool
	exponent  int // digits of the exponent
	left      int // characters before the point
	right     int // and after it
}

// newNumPyFloats chooses the form for the values.
func newNumPyFloats(values []float64, d dtype.DType, plus bool, o PrintOptions) *numpyFloats {
	f := &numpyFloats{dtype: d, plus: plus, precision: o.Precision}
	least, greatest, signed := math.Inf(1), 0.0, plus
	for _, x := range values {
		if x != 0 && finite(x) {
			least, greatest = min(least, math.Abs(x)), max(greatest, math.Abs(x))
		}
		signed = signed || x == math.Inf(-1)
	}
	small := least < 1e-4 || quotient(greatest, least, d) > 1000 // not if all are zero: least is infinite then
	f.exponents = greatest >= 1e8 || o.SciMode == SciAlways || (small && o.SciMode == SciAuto)
	f.measure(values)
	if slices.ContainsFunc(values, func(x float64) bool { return !finite(x) }) {
		width := len("inf")
		if signed {
			width++
		}
		f.left = max(f.left, width-f.right-1) // the sign of NaN is not printed
	}
	return f
}

// measure computes the width of the finite values. With exponents all numbers get the digits of the longest.
func (f *numpyFloats) measure(values []float64) {
	longest := 0
	for _, x := range values {
		if !finite(x) {
			continue
		}
		var whole, fraction, exponent string
		if f.exponents {
			whole, fraction, exponent = scientific(x, f.dtype, 0, f.precision)
			f.exponent = max(f.exponent, len(exponent)-1)
		} else {
			whole, fraction = positional(x, f.dtype, f.precision)
		}
		f.left = max(f.left, len(f.signed(whole)))
		longest = max(longest, len(fraction))
	}
	f.right = longest
	if f.exponents {
		f.precision = longest
		f.right += f.exponent + len("e+")
	}
}

func (f *numpyFloats) signed(whole string) string {
	if f.plus && whole[0] != '-' {
		return "+" + whole
	}
	return whole
}

func (f *numpyFloats) word(x float64) string {
	switch {
	case math.IsNaN(x):
		return pad(f.signed("nan"), f.left+1+f.right)
	case x > math.MaxFloat64:
		return pad(f.signed("inf"), f.left+1+f.right)
	case x < -math.MaxFloat64:
		return pad("-inf", f.left+1+f.right)
	case f.exponents:
		whole, fraction, exponent := scientific(x, f.dtype, f.precision, f.precision)
		zeros := strings.Repeat("0", max(f.exponent-(len(exponent)-1), 0))
		return pad(f.signed(whole), f.left) + "." + fraction + "e" + exponent[:1] + zeros + exponent[1:]
	}
	whole, fraction := positional(x, f.dtype, f.precision)
	return pad(f.signed(whole), f.left) + "." + fraction + strings.Repeat(" ", max(f.right-len(fraction), 0))
}

// quotient divides in the type itself, as NumPy does.
func quotient(x, y float64, d dtype.DType) float64 {
	switch d {
	case dtype.Float64:
		return x / y
	case dtype.Float16:
		return float64(dtype.ToF16(float32(x) / float32(y)).Float32())
	}
	return float64(float32(x) / float32(y))
}

// numpyRow fills lines by length. It leaves room for a comma, for the closing brackets, and for the end of the array.
func numpyRow(lineWidth int) func(p *page, words []string, cut bool, margin, depth int) {
	return func(p *page, words []string, cut bool, margin, depth int) {
		if cut {
			words = slices.Insert(slices.Clone(words), p.edge, "...")
		}
		width := lineWidth - len("])") - depth
		column := margin
		for i, word := range words {
			if i > 0 {
				p.out = append(p.out, ", "...)
				column += len(", ")
			}
			if column > margin && column+len(word) > width {
				p.wrap(margin)
				column = margin
			}
			p.out = append(p.out, word...)
			column += len(word)
		}
	}
}
