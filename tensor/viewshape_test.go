package tensor_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// All ranges with ends from -6 to 6 or none, steps from -3 to 3, of lengths up to 4, as Python's slices give them. What
// the text is and its digest come from:
//
//	import hashlib
//	ends, text = [None] + list(range(-6, 7)), lambda x: "" if x is None else str(x)
//	print(hashlib.sha256("".join(f"{n} {text(a)}:{text(b)}:{s} {''.join(map(str, range(n)[a:b:s]))}\n"
//	    for n in range(5) for a in ends for b in ends for s in [-3, -2, -1, 1, 2, 3]).encode()).hexdigest())
func TestRangesAreThoseOfPython(t *testing.T) {
	p := hostPlace(t)
	var text strings.Builder
	for n := range 5 {
		x := tensor.Must(tensor.View(p, make([]int8, n)))
		for a := -7; a <= 6; a++ {
			for b := -7; b <= 6; b++ {
				for _, step := range []int{-3, -2, -1, 1, 2, 3} {
					r := tensor.FromTo(a, b)
					switch {
					case a == -7 && b == -7: // -7 is for none, which comes first
						r = tensor.Whole
					case a == -7:
						r = tensor.UpTo(b)
					case b == -7:
						r = tensor.From(a)
					}
					r = r.By(step)
					v := tensor.Must(x.Slice(r))
					fmt.Fprintf(&text, "%d %v ", n, r)
					for i := range v.Len() {
						fmt.Fprint(&text, v.Offset()+i*v.Strides()[0])
					}
					text.WriteByte('\n')
				}
			}
		}
		x.Release()
	}
	const want = "18a6b69433742471b031c1852977e4fa0698c59c23e9068bab8e0f614d0ff739"
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(text.String()))); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// Numbers far beyond any length are no reason to overflow.
func TestExtremeArguments(t *testing.T) {
	p := hostPlace(t)
	x := tensor.Must(tensor.View(p, numbers(12), 3, 4))
	defer x.Release()
	extremes := []int{math.MinInt, math.MinInt + 1, -1 << 62, 1 << 62, math.MaxInt - 1, math.MaxInt}
	for _, a := range extremes {
		for _, b := range extremes {
			for _, step := range append(extremes, -1, 1) {
				v, err := x.Slice(tensor.Whole, tensor.FromTo(a, b).By(step))
				if err != nil {
					t.Fatal(err)
				}
				want := 0
				switch {
				case a < 0 && b > 0 && step > 0, a > 0 && b < 0 && step < 0:
					want = 1
					if step == 1 || step == -1 {
						want = 4
					}
				}
				if v.Dim(1) != want || v.Offset() < 0 || v.Offset() > 3 {
					t.Errorf("[:, %d:%d:%d] is %v at %d, want length %d", a, b, step, v.Brief(), v.Offset(), want)
				}
			}
			for what, f := range map[string]func() (*tensor.Tensor, error){
				"Select":    func() (*tensor.Tensor, error) { return x.Select(0, a) },
				"Narrow":    func() (*tensor.Tensor, error) { return x.Narrow(0, a, b) },
				"Index":     func() (*tensor.Tensor, error) { return x.Slice(tensor.Index(a)) },
				"Transpose": func() (*tensor.Tensor, error) { return x.Transpose(a, b) },
				"Unsqueeze": func() (*tensor.Tensor, error) { return x.Unsqueeze(a) },
				"Reshape":   func() (*tensor.Tensor, error) { return x.Reshape(a, b) },
				"Expand":    func() (*tensor.Tensor, error) { return x.Expand(a, b, 3, 4) },
				"Unfold":    func() (*tensor.Tensor, error) { return x.Unfold(0, a, b) },
				"AsStrided": func() (*tensor.Tensor, error) { return x.AsStrided([]int{2, 2}, []int{a, b}, 0) },
				"offset":    func() (*tensor.Tensor, error) { return x.AsStrided([]int{2}, []int{1}, a) },
			} {
				if v, err := f(); err == nil {
					t.Errorf("%s with %d and %d gives %v", what, a, b, v.Brief())
				}
			}
			if v, err := x.Diagonal(a, 0, 1); err != nil || v.Len() != 0 {
				t.Errorf("Diagonal(%d): %v, %v", a, v.Brief(), err)
			}
		}
		if _, err := x.Split(0, a, a, 3); err == nil {
			t.Errorf("Split into twice %d", a)
		}
		if parts, err := x.Chunk(0, a); (err == nil) != (a > 0) || (a > 0 && len(parts) != 3) {
			t.Errorf("Chunk into %d: %d parts, %v", a, len(parts), err)
		}
		if v, err := x.Unfold(0, 2, a); (err == nil) != (a > 0) || (a > 0 && !slices.Equal(v.Shape(), []int{1, 4, 2})) {
			t.Errorf("Unfold by %d: %v, %v", a, v.Brief(), err)
		}
	}
	if _, err := x.Expand(1<<31, 1<<31, 3, 4); err == nil {
		t.Error("Expand to 2^62 * 12 elements")
	}
	one := tensor.Must(x.Slice(tensor.Index(0), tensor.UpTo(1)))
	if _, err := one.Expand(1<<31, 1<<31, 1); err == nil {
		t.Error("Expand to 2^62 elements of 4 bytes")
	}
	if v, err := one.Expand(1<<40, 1); err != nil || v.Len() != 1<<40 {
		t.Error("Expand to 2^40 elements takes no memory:", err)
	}
	deep := one
	for range backend.MaxRank - 1 {
		deep = tensor.Must(deep.Unsqueeze(0))
	}
	for what, f := range map[string]func() (*tensor.Tensor, error){
		"Unsqueeze": func() (*tensor.Tensor, error) { return deep.Unsqueeze(0) },
		"Slice":     func() (*tensor.Tensor, error) { return deep.Slice(tensor.NewAxis) },
		"Unfold":    func() (*tensor.Tensor, error) { return deep.Unfold(-1, 1, 1) },
		"Expand":    func() (*tensor.Tensor, error) { return deep.Expand(append([]int{1}, deep.Shape()...)...) },
		"Reshape":   func() (*tensor.Tensor, error) { return deep.Reshape(append([]int{1}, deep.Shape()...)...) },
	} {
		if v, err := f(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s to %d axes: %v, %v", what, backend.MaxRank+1, v.Brief(), err)
		}
	}
}

func TestErrorsNameBothSides(t *testing.T) {
	p := hostPlace(t)
	x := tensor.Must(tensor.View(p, numbers(6), 2, 3))
	defer x.Release()
	many := func(_ []*tensor.Tensor, err error) error { return err }
	single := func(_ *tensor.Tensor, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{single(x.Transpose(0, 2)), "Transpose(0, 2) of float32[2 3]: there is no axis 2"},
		{single(x.Permute(1)), "Permute([1]) of float32[2 3]: 1 axes are named, of 2"},
		{single(x.Permute(1, -1)), "Permute([1 -1]) of float32[2 3]: axis 1 is named twice"},
		{single(x.Squeeze(0)), "Squeeze([0]) of float32[2 3]: axis 0 has length 2, not 1"},
		{single(x.Unsqueeze(4)), "Unsqueeze(4) of float32[2 3]: the new axis may be from -3 to 2"},
		{single(x.Slice(tensor.Index(0), tensor.Index(3))), "Slice(0, 3) of float32[2 3]: index 3 is out of range for axis 1 of length 3"},
		{single(x.Slice(tensor.Whole, tensor.Whole, tensor.From(1))), "Slice(:, :, 1:) of float32[2 3]: it takes 3 axes, of 2"},
		{single(x.Slice(tensor.Rest, tensor.Rest)), "Slice(..., ...) of float32[2 3]: there are 2 Rests"},
		{single(x.Slice(tensor.FromTo(0, 1).By(0))), "Slice(0:1:0) of float32[2 3]: range 0 has a step of 0"},
		{single(x.Select(1, 3)), "Select(1, 3) of float32[2 3]: the index is out of range for axis 1 of length 3"},
		{single(x.Narrow(1, 2, 2)), "Narrow(1, 2, 2) of float32[2 3]: axis 1 has 1 indices from 2 on"},
		{many(x.Split(1, 1, 1)), "Split(1, [1 1]) of float32[2 3]: the lengths do not add up to 3, that of axis 1"},
		{many(x.Chunk(1, 0)), "Chunk(1, 0) of float32[2 3]: there is at least one part"},
		{single(x.Reshape(4)), "Reshape([4]) of float32[2 3]: it has 6 elements"},
		{single(x.Reshape(-1, 4)), "Reshape([-1 4]) of float32[2 3]: it has 6 elements"},
		{single(x.Reshape(-1, 0)), "Reshape([-1 0]) of float32[2 3]: beside a length of 0, -1 may stand for any"},
		{single(x.Flatten(1, 0)), "Flatten(1, 0) of float32[2 3]: axis 1 is not before axis 0"},
		{single(x.Expand(3)), "Expand([3]) of float32[2 3]: it has 2 axes"},
		{single(x.Expand(4, 3)), "Expand([4 3]) of float32[2 3]: axis 0 has length 2: only 1 can become 4"},
		{single(x.Unfold(1, 4, 1)), "Unfold(1, 4, 1) of float32[2 3]: axis 1 has length 3"},
		{single(x.Unfold(1, 2, 0)), "Unfold(1, 2, 0) of float32[2 3]: the step must be positive"},
		{single(x.AsStrided([]int{2}, nil, 0)), "AsStrided([2], [], 0) of float32[2 3]: there are 0 strides for 1 axes"},
		{single(x.AsStrided([]int{3}, []int{3}, 0)), "AsStrided([3], [3], 0) of float32[2 3]: float32[3] with strides [3] from element 0 does not lie in 24 bytes"},
		{single(x.Diagonal(0, 1, -1)), "Diagonal(0, 1, -1) of float32[2 3]: axis 1 is named twice"},
		{single(x.Flip(7)), "Flip([7]) of float32[2 3]: there is no axis 7"},
		{single(x.ViewAs(dtype.Float64)), "ViewAs(float64) of float32[2 3]: 3 elements along the last axis are not a multiple of 2"},
		{single(x.T().ViewAs(dtype.Float64)), "ViewAs(float64) of float32[3 2]: the last axis has stride 3, only consecutive elements can change their size"},
		{single(x.ViewAs(dtype.Bool)), "ViewAs(bool) of float32[2 3]: its bytes may be neither 0 nor 1"},
		{single(x.Imag()), "Imag of float32[2 3]: its numbers have no imaginary parts"},
		{single(tensor.Must(x.Select(0, 0)).MT()), "MT of float32[3]: a matrix has two axes"},
	} {
		if c.err == nil || c.err.Error() != "tensor: "+c.want {
			t.Errorf("got  %v\nwant tensor: %s", c.err, c.want)
		}
	}
	if _, err := x.Reshape(4); errors.Is(err, tensor.ErrNeedsCopy) {
		t.Error("a shape that does not fit is no matter of a copy")
	}
	if _, err := x.T().Flatten(0, 1); !errors.Is(err, tensor.ErrNeedsCopy) {
		t.Error("a copy would do:", err)
	}
}

func TestBroadcastShapes(t *testing.T) {
	for _, c := range []struct {
		shapes [][]int
		want   []int
		text   string
	}{
		{shapes: nil, want: []int{}},
		{shapes: [][]int{{}}, want: []int{}},
		{shapes: [][]int{{2, 3}, {3}}, want: []int{2, 3}},
		{shapes: [][]int{{2, 1}, {1, 5}, {}}, want: []int{2, 5}},
		{shapes: [][]int{{0, 1}, {1, 4}}, want: []int{0, 4}},
		{shapes: [][]int{{1}, {0}}, want: []int{0}},
		{shapes: [][]int{{1, 1}, {1}, {}}, want: []int{1, 1}},
		{shapes: [][]int{{2, 3}, {1}, {2, 4}}, text: "tensor: shapes [2 3] and [2 4] cannot be broadcast: lengths 3 and 4 at axis -1"},
		{shapes: [][]int{{2}, {0}}, text: "tensor: shapes [2] and [0] cannot be broadcast: lengths 2 and 0 at axis -1"},
		{shapes: [][]int{{2, 3, 1}, {4, 1, 1}}, text: "tensor: shapes [2 3 1] and [4 1 1] cannot be broadcast: lengths 2 and 4 at axis -3"},
		{shapes: [][]int{{-1}, {1}}, text: "tensor: shape [-1] has a negative length"},
	} {
		got, err := tensor.BroadcastShapes(c.shapes...)
		if (err != nil && err.Error() != c.text) || (err == nil && c.text != "") || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v", c.shapes, got, err)
		}
	}
	// It is the shape that all can be expanded to, and there is none exactly if two of them do not fit.
	p := hostPlace(t)
	r := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	for range 2000 {
		var shapes [][]int
		var views []*tensor.Tensor
		for range between(r, 1, 3) {
			shape := make([]int, r.IntN(4))
			for i := range shape {
				shape[i] = []int{1, 1, 1, 3, 3, 0, 4}[r.IntN(7)]
			}
			x := tensor.Must(tensor.View(p, make([]int8, product(shape)), append([]int{1}, shape...)...))
			defer x.Release()
			shapes, views = append(shapes, shape), append(views, tensor.Must(x.Select(0, 0)))
		}
		wide, err := tensor.BroadcastShapes(shapes...)
		if err == nil {
			for _, v := range views {
				if _, err := v.Expand(wide...); err != nil {
					t.Fatalf("%v to %v: %v", shapes, wide, err)
				}
			}
			continue
		}
		fits := true
		for _, a := range shapes {
			for _, b := range shapes {
				for i := 1; i <= min(len(a), len(b)); i++ {
					m, n := a[len(a)-i], b[len(b)-i]
					fits = fits && (m == n || m == 1 || n == 1)
				}
			}
		}
		if fits {
			t.Fatalf("%v: %v", shapes, err)
		}
	}
}
