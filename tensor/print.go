package tensor

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/dtype"
)

// Tensors are printed exactly as PyTorch and NumPy print them, because users know these texts and compare them in
// tests. Printing has three steps. An excerpt (printread.go) reads only the elements to print from the device. The
// words are the texts of the elements, which share one width and one notation (printtorch.go, printnumpy.go, with the
// digits of printdigits.go). A page (printpage.go) arranges the words in brackets and lines.
//
// The rules are those of PyTorch's torch/_tensor_str.py (before 2.4, widths with an explicit sci_mode differ:
// https://github.com/pytorch/pytorch/pull/126859), and of NumPy's core/arrayprint.py from 1.24 to 2.1. Later NumPy
// prints the same after set_printoptions(legacy='2.1'); without it, 2.2 adds the shape of shortened arrays, and later
// releases print float16 from 1000 and float32 from 1e6 on with exponents. NumPy has no bfloat16 and no 8-bit floats:
// they are printed by the same rules.

// A Style selects PyTorch's or NumPy's form of text.
type Style uint8

// The styles.
const (
	PyTorchStyle Style = iota // tensor([[1., 2.],\n        [3., 4.]])
	NumPyStyle                // array([[1., 2.],\n       [3., 4.]], dtype=float32)
)

// Options returns the style's own defaults.
func (s Style) Options() PrintOptions {
	if s == NumPyStyle {
		return PrintOptions{Style: s, Precision: 8, Threshold: 1000, EdgeItems: 3, LineWidth: 75}
	}
	return PrintOptions{Style: s, Precision: 4, Threshold: 1000, EdgeItems: 3, LineWidth: 80}
}

// PrintOptions are NumPy's and PyTorch's print options of the same names. Start from Style.Options: a zero here is not
// replaced by a default.
type PrintOptions struct {
	Style     Style
	Precision int     // digits after the point, for NumPyStyle the maximum; negative: as many as identify the number
	Threshold int     // a tensor with more elements is shortened to the ends of its long axes
	EdgeItems int     // elements at each end, at least 1
	LineWidth int     // in characters; a line with a single element may be longer
	SciMode   SciMode // use of exponents
}

// A SciMode selects when numbers are printed with exponents.
type SciMode uint8

// The modes.
const (
	SciAuto   SciMode = iota // if numbers are large or small, or their range is wide
	SciAlways                // as PyTorch's sci_mode=True
	SciNever                 // as PyTorch's sci_mode=False; in NumPyStyle as suppress=True: only for large numbers
)

// String returns t as PyTorch prints it. It waits for the work that writes t, and reads only the elements that it
// shows. It never panics: if t cannot be read the text gives the reason, as in "tensor(float32[2 3], released at
// main.go:7)". The undefined tensor is "tensor(undefined)".
func (t *Tensor) String() string { return t.print(PyTorchStyle.Options(), false) }

// Format implements fmt.Formatter: %v and %s are String, %.2v sets the precision, and %+v adds size, stride and, if it
// is not 0, storage_offset, with PyTorch's names.
func (t *Tensor) Format(f fmt.State, verb rune) {
	if verb != 'v' && verb != 's' {
		io.WriteString(f, "%!"+string(verb)+"(tensor "+t.Brief()+")")
		return
	}
	o := PyTorchStyle.Options()
	if precision, ok := f.Precision(); ok {
		o.Precision = precision
	}
	io.WriteString(f, t.print(o, f.Flag('+')))
}

// Text returns t printed with the options. It waits as String does; the error is the device's. It panics if t was
// released.
func (t *Tensor) Text(o PrintOptions) (string, error) {
	if t != nil {
		t.alive("Text")
	}
	return t.text(o, false)
}

// print is text with errors reported in the text.
func (t *Tensor) print(o PrintOptions, views bool) string {
	if t != nil {
		if at := t.releasedAt(); at != nil {
			return fmt.Sprintf("tensor(%s, released at %v)", t.brief(), at)
		}
	}
	s, err := t.text(o, views)
	if err != nil {
		return fmt.Sprintf("tensor(%s, not readable: %v)", t.brief(), err)
	}
	return s
}

// text prints t; with views it adds the shape, the strides and the offset.
func (t *Tensor) text(o PrintOptions, views bool) (string, error) {
	o.EdgeItems = max(o.EdgeItems, 1)
	if t == nil {
		if o.Style == NumPyStyle {
			return "array(undefined)", nil
		}
		return "tensor(undefined)", nil
	}
	e, err := t.excerpt(o.Threshold, o.EdgeItems)
	if err != nil {
		return "", err
	}
	if o.Style == NumPyStyle {
		return t.numpyText(e, o), nil
	}
	return t.torchText(e, o, views), nil
}

// torchText returns tensor(, the elements, and the properties that they do not imply.
func (t *Tensor) torchText(e *excerpt, o PrintOptions, views bool) string {
	var notes []string
	if t.place.state.device.Info().Driver != "host" {
		notes = append(notes, "device='"+t.place.String()+"'")
	}
	p := page{out: []byte("tensor("), excerpt: e, edge: o.EdgeItems}
	empty := t.Len() == 0
	if views || (empty && len(t.shape) != 1) {
		notes = append(notes, "size="+tuple(t.shape))
	}
	if views {
		notes = append(notes, "stride="+tuple(t.strides))
	}
	if views && t.offset != 0 {
		notes = append(notes, "storage_offset="+strconv.Itoa(t.offset))
	}
	implied := []dtype.DType{dtype.Float32, dtype.Complex64, dtype.Int64, dtype.Bool}
	if empty {
		implied = implied[:1]
		p.out = append(p.out, "[]"...)
	} else {
		var width int
		p.words, width = torchWords(e, o)
		p.row = torchRow(o.LineWidth, width)
		p.axis(0, len("tensor(["))
	}
	if !slices.Contains(implied, t.dtype) {
		notes = append(notes, "dtype="+t.dtype.PyTorch())
	}
	column := p.column() + 2 // as PyTorch counts
	for _, note := range notes {
		separator := ", "
		column += len(note) + 2
		if column > o.LineWidth {
			separator = ",\n" + strings.Repeat(" ", len("tensor("))
			column = len("tensor(") + len(note)
		}
		p.out = append(append(p.out, separator...), note...)
	}
	return string(append(p.out, ')'))
}

// numpyText returns array(, the elements, and the properties that they do not imply.
func (t *Tensor) numpyText(e *excerpt, o PrintOptions) string {
	p := page{out: []byte("array("), excerpt: e, edge: o.EdgeItems}
	empty := t.Len() == 0
	if empty {
		p.out = append(p.out, "[]"...)
		if len(t.shape) != 1 {
			p.out = append(p.out, ", shape="+tuple(t.shape)...)
		}
	} else {
		p.words, p.row = numpyWords(e, o), numpyRow(o.LineWidth)
		p.axis(0, len("array(["))
	}
	implied := []dtype.DType{dtype.Float64, dtype.Complex128, dtype.Int64, dtype.Bool}
	if !empty && slices.Contains(implied, t.dtype) {
		return string(append(p.out, ')'))
	}
	p.out = append(p.out, ',')
	note := "dtype=" + t.dtype.String() + ")"
	separator := " "
	if p.column()+len(note)+1 > o.LineWidth {
		separator = "\n" + strings.Repeat(" ", len("array("))
	}
	return string(append(append(p.out, separator...), note...))
}

// tuple returns numbers as a Python tuple: (), (2,), (2, 3).
func tuple(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	if len(words) == 1 {
		return "(" + words[0] + ",)"
	}
	return "(" + strings.Join(words, ", ") + ")"
}
