package compute_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// A call is a line of testdata/calls.txt: a call of PyTorch, and its result.
type call struct {
	op       string
	operands []value
	options  map[string]string
	refused  bool
	results  []value
}

// A value is a tensor's type, shape and elements, or a number.
type value struct {
	dtype    dtype.DType
	number   bool
	shape    []int
	elements []dtype.Scalar
}

// differences lists exactly the calls in which Ashlar differs from PyTorch 1.13.
var differences = []struct {
	why    string
	of     func(c *call) bool
	expect func(c *call) // changes what is expected to what Ashlar does; nil: it is refused by one, and by the other not
}{
	{
		why: "any and all give bools, of uint8 too",
		of:  func(c *call) bool { return (c.op == "any" || c.op == "all") && c.operands[0].dtype == dtype.Uint8 },
		expect: func(c *call) {
			c.results[0].dtype = dtype.Bool
			for i, e := range c.results[0].elements {
				c.results[0].elements[i] = e.Convert(dtype.Bool)
			}
		},
	},
	{
		why: "the sign of NaN is NaN",
		of:  func(c *call) bool { return c.op == "u_sign" && slices.ContainsFunc(c.operands[0].elements, isNaN) },
		expect: func(c *call) {
			for i, e := range c.operands[0].elements {
				if isNaN(e) {
					c.results[0].elements[i] = e
				}
			}
		},
	},
	{
		why: "integers have no softmax, though there are none of them",
		of: func(c *call) bool {
			return strings.HasSuffix(c.op, "softmax") && !c.operands[0].dtype.IsFloat() && len(c.operands[0].elements) == 0
		},
	},
	{
		why: "a bool has no sign and no square",
		of: func(c *call) bool {
			return (c.op == "u_sign" || c.op == "u_square") && c.operands[0].dtype == dtype.Bool
		},
	},
	{
		why: "an integer divided by 0 is 0, and so is the rest",
		of: func(c *call) bool {
			x, y := c.operands[0].dtype, last(c).dtype
			division := strings.HasSuffix(c.op, "floor_divide") || c.op == "remainder"
			may := x != dtype.Bool || (y != dtype.Bool && c.op != "into_floor_divide")
			return division && may && !x.IsFloat() && !y.IsFloat() && slices.ContainsFunc(last(c).elements, isZero) && c.refused
		},
	},
	{
		why: "an integer to a negative power is 0, but of 1 and -1",
		of: func(c *call) bool {
			return c.op == "pow" && last(c).number && !c.operands[0].dtype.IsFloat() && last(c).elements[0].Int64() < 0 && c.refused
		},
	},
	{
		why: "a bool may be subtracted, as 0 or 1, from what is no bool, and the other way round",
		of: func(c *call) bool {
			x, y := c.operands[0].dtype == dtype.Bool, last(c).dtype == dtype.Bool
			return (c.op == "sub" || c.op == "into_sub") && x != y && !(c.op == "into_sub" && x)
		},
	},
}

func last(c *call) value { return c.operands[len(c.operands)-1] }

func isNaN(s dtype.Scalar) bool { return math.IsNaN(s.Float64()) }

func isZero(s dtype.Scalar) bool { return !s.Bool() }

// closeTo is how far a float may be from PyTorch's, as a part of it (or of a thousandth, if that is more): a few
// roundings of the wide types, one of the narrow ones. Integers, bools, types and shapes are the same.
var closeTo = map[dtype.DType]float64{
	dtype.Float64: 1e-12, dtype.Float32: 1e-5, dtype.Float16: 1.0 / (1 << 10), dtype.BFloat16: 1.0 / (1 << 7),
}

// TestCallsOfPyTorch makes the calls of testdata/calls.txt (calls.py wrote it) and compares.
func TestCallsOfPyTorch(t *testing.T) {
	p := place(t, "host")
	text, err := os.ReadFile("testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	met := make([]int, len(differences))
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		calls++
		c := parseCall(t, line)
		departs := false
		for i, d := range differences {
			if d.of(c) {
				met[i]++
				departs = d.expect == nil
				if !departs {
					d.expect(c)
				}
			}
		}
		in := p.Scope()
		got, err := c.make(in.Place)
		switch refused := err != nil; {
		case refused != (c.refused != departs):
			t.Errorf("%s\tgives %v, %v", line, got, err)
		case !refused && !c.refused:
			c.compare(t, line, got)
		}
		in.Close()
	}
	if calls < 1500 {
		t.Errorf("only %d calls in the file", calls)
	}
	for i, d := range differences {
		if met[i] == 0 {
			t.Errorf("no call shows that %s", d.why)
		}
	}
}

func parseCall(t *testing.T, line string) *call {
	t.Helper()
	left, right, ok := strings.Cut(strings.TrimSpace(line), " -> ")
	words := strings.Fields(left)
	c := &call{op: words[0], options: map[string]string{}, refused: right == "refused"}
	for _, w := range words[1:] {
		if strings.Contains(w, ":") {
			c.operands = append(c.operands, parseValue(t, w))
		} else {
			name, setting, _ := strings.Cut(w, "=")
			c.options[name] = setting
		}
	}
	for _, w := range strings.Fields(right) {
		if !c.refused {
			c.results = append(c.results, parseValue(t, w))
		}
	}
	if !ok || len(c.operands) == 0 {
		t.Fatalf("no call: %s", line)
	}
	return c
}

func parseValue(t *testing.T, word string) value {
	t.Helper()
	form, elements, _ := strings.Cut(word, ":")
	name, shape, tensor := strings.Cut(form, "[")
	v := value{number: !tensor, shape: []int{}}
	if v.number {
		name = map[string]string{"int": "int64", "float": "float64", "bool": "bool"}[name]
	}
	var err error
	if v.dtype, err = dtype.Parse(name); err != nil {
		t.Fatalf("%s: %v", word, err)
	}
	if shape = strings.TrimSuffix(shape, "]"); shape != "" {
		v.shape = numbers(t, shape)
	}
	for e := range strings.SplitSeq(elements, ",") {
		var x any
		switch {
		case e == "":
			continue
		case v.dtype.IsFloat():
			x, err = strconv.ParseFloat(e, 64)
		default:
			x, err = strconv.ParseInt(e, 10, 64)
		}
		if err != nil {
			t.Fatalf("%s: %v", word, err)
		}
		v.elements = append(v.elements, dtype.ScalarOf(x).Convert(v.dtype))
	}
	return v
}

func numbers(t *testing.T, list string) []int {
	t.Helper()
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// operand returns v as compute takes it.
func (v value) operand(p *tensor.Place) compute.Operand {
	if v.number {
		return v.elements[0]
	}
	size := v.dtype.Size()
	b := make([]byte, len(v.elements)*size)
	for i, e := range v.elements {
		e.Put(b[i*size:], v.dtype)
	}
	s, err := tensor.FromBytes(p, b, nil)
	if err != nil {
		panic(err)
	}
	defer s.Release()
	return tensor.Must(tensor.FromStorage(p, s, v.dtype, 0, v.shape, nil))
}

// make does the call.
func (c *call) make(p *tensor.Place) ([]*tensor.Tensor, error) {
	operands := make([]compute.Operand, len(c.operands))
	xs := make([]*tensor.Tensor, len(c.operands)) // nil of a number
	for i, v := range c.operands {
		operands[i] = v.operand(p)
		xs[i], _ = operands[i].(*tensor.Tensor)
	}
	axis, _ := strconv.Atoi(c.options["axis"])
	_, keep := c.options["keep"]
	_, descending := c.options["descending"]
	one := func(x *tensor.Tensor, err error) ([]*tensor.Tensor, error) { return []*tensor.Tensor{x}, err }
	switch c.op {
	case "argmax":
		return one(compute.ArgMax(p, xs[0], axis))
	case "argmin":
		return one(compute.ArgMin(p, xs[0], axis))
	case "softmax":
		return one(compute.Softmax(p, xs[0], axis))
	case "log_softmax":
		return one(compute.LogSoftmax(p, xs[0], axis))
	case "sort":
		v, i, err := compute.Sort(p, xs[0], axis, descending)
		return []*tensor.Tensor{v, i}, err
	case "topk":
		k, _ := strconv.Atoi(c.options["k"])
		v, _, err := compute.TopK(p, xs[0], k, axis)
		return one(v, err)
	case "matmul":
		return one(compute.MatMul(p, xs[0], xs[1]))
	case "gather":
		return one(compute.Gather(p, xs[0], axis, xs[1]))
	case "scatter_add":
		return one(xs[0], compute.ScatterAdd(p, xs[0], axis, xs[1], xs[2]))
	case "where":
		return one(compute.Where(p, xs[0], operands[1], operands[2]))
	case "concat":
		return one(compute.Concat(p, axis, xs...))
	case "arange":
		d, err := dtype.Parse(c.options["type"])
		if err != nil {
			return nil, err
		}
		return one(compute.Arange(p, d, operands[0], operands[1], operands[2]))
	}
	if name, ok := strings.CutPrefix(c.op, "u_"); ok {
		return one(compute.Unary(p, named(name, backend.LastUnaryOp), xs[0]))
	}
	if name, ok := strings.CutPrefix(c.op, "into_"); ok {
		return one(xs[0], compute.BinaryInto(p, xs[0], named(name, backend.LastBinaryOp), xs[0], operands[1]))
	}
	if len(c.operands) == 2 {
		return one(compute.Binary(p, named(c.op, backend.LastBinaryOp), operands[0], operands[1]))
	}
	axes := []int{axis}
	if list, ok := c.options["axes"]; ok {
		axes = nil
		for word := range strings.SplitSeq(list, ",") {
			n, _ := strconv.Atoi(word)
			axes = append(axes, n)
		}
	}
	return one(compute.Reduce(p, named(c.op, backend.LastReduceOp), xs[0], compute.Over{Axes: axes, Keep: keep}))
}

// named returns the operation of a name, among those up to the last.
func named[Op interface {
	~uint8
	fmt.Stringer
}](name string, last Op) Op {
	for op := Op(0); op <= last; op++ {
		if op.String() == name {
			return op
		}
	}
	panic("no operation " + name)
}

// compare compares the result of a call with the expected one.
func (c *call) compare(t *testing.T, line string, got []*tensor.Tensor) {
	t.Helper()
	for i, want := range c.results {
		x := got[i]
		if x.DType() != want.dtype || !slices.Equal(x.Shape(), want.shape) {
			t.Errorf("%s\tgives %s", line, x.Brief())
			continue
		}
		b := make([]byte, x.Size())
		if err := x.Read(b); err != nil {
			t.Error(err)
			continue
		}
		for j, w := range want.elements {
			if g := want.dtype.Load(b[j*want.dtype.Size():]); !near(g, w, want.dtype) {
				t.Errorf("%s\tgives %v as element %d", line, g, j)
			}
		}
	}
}

// near reports whether a result is as close to PyTorch's as its type has to be; -0 is 0.
func near(got, want dtype.Scalar, d dtype.DType) bool {
	if !d.IsFloat() {
		return got == want
	}
	g, w := got.Float64(), want.Float64()
	return g == w || (math.IsNaN(g) && math.IsNaN(w)) || math.Abs(g-w) <= closeTo[d]*max(math.Abs(w), 1e-3)
}
