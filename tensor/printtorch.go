package tensor

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/dtype"
)

// torchWords returns the elements in PyTorch's form, and the width that PyTorch uses to fill lines, which is not always
// that of the words.
func torchWords(e *excerpt, o PrintOptions) (words []string, width int) {
	if !e.dtype.IsFloat() && !e.dtype.IsComplex() {
		words, width = e.exact()
		for i, word := range words {
			words[i] = pad(word, width)
		}
		return words, width
	}
	re, im := e.floats()
	words = make([]string, len(re))
	f := newTorchFloats(re, e.component(), o)
	for i, x := range re {
		words[i] = f.word(x)
	}
	if !e.dtype.IsComplex() {
		return words, f.width
	}
	g := newTorchFloats(im, e.component(), o)
	for i, x := range im {
		word := strings.TrimLeft(g.word(x), " ")
		if word[0] != '-' {
			word = "+" + word
		}
		words[i] += word + "j"
	}
	return words, f.width + g.width + len("j")
}

// torchFloats formats the floats of one tensor in PyTorch's form.
type torchFloats struct {
	dtype     dtype.DType
	precision int
	integers  bool // all are whole: no digits after the point
	exponents bool
	width     int
}

// newTorchFloats chooses the form for the values. Zeros, infinities and NaNs do not count, not even for the width.
func newTorchFloats(values []float64, d dtype.DType, o PrintOptions) torchFloats {
	f := torchFloats{dtype: d, precision: o.Precision, integers: true, width: 1}
	least, greatest := math.Inf(1), 0.0
	counts := func(x float64) bool { return x != 0 && finite(x) }
	for _, x := range values {
		if counts(x) {
			least, greatest = min(least, math.Abs(x)), max(greatest, math.Abs(x))
			f.integers = f.integers && x == math.Ceil(x)
		}
	}
	if greatest == 0 {
		return f // SciMode has no effect without a number
	}
	f.exponents = greatest/least > 1000 || greatest > 1e8 || least < 1e-4
	if o.SciMode != SciAuto {
		f.exponents = o.SciMode == SciAlways
	}
	for _, x := range values {
		if counts(x) {
			f.width = max(f.width, len(f.word(x)))
		}
	}
	return f
}

func (f *torchFloats) word(x float64) string {
	if !finite(x) {
		return pad(strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(x, 'f', -1, 64), "+")), f.width)
	}
	if f.precision < 0 && (f.exponents || x != math.Trunc(x)) {
		x = shortest(x, f.dtype)
	}
	switch {
	case f.exponents:
		return pad(strconv.FormatFloat(x, 'e', f.precision, 64), f.width)
	case f.integers:
		return pad(strconv.FormatFloat(x, 'f', 0, 64)+".", f.width)
	}
	return pad(strconv.FormatFloat(x, 'f', f.precision, 64), f.width)
}

// torchRow fills lines by count: as many words of the width as fit, where the ellipsis is one of them.
func torchRow(lineWidth, width int) func(p *page, words []string, cut bool, margin, depth int) {
	return func(p *page, words []string, cut bool, margin, _ int) {
		if cut {
			words = slices.Insert(slices.Clone(words), p.edge, " ...")
		}
		perLine := max(1, (lineWidth-(margin-1))/(width+len(", ")))
		for i, word := range words {
			switch {
			case i == 0:
			case i%perLine == 0:
				p.out = append(p.out, ',')
				p.wrap(margin)
			default:
				p.out = append(p.out, ", "...)
			}
			p.out = append(p.out, word...)
		}
	}
}

// finite reports whether x is neither infinite nor NaN.
func finite(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }
