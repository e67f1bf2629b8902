package tensor_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// A step is one random view: the request to a tensor, and the result expected by the model, or nil for an error.
type step struct {
	text string
	ask  func(*tensor.Tensor) ([]*tensor.Tensor, error)
	want []*model
}

func one(v *tensor.Tensor, err error) ([]*tensor.Tensor, error) { return []*tensor.Tensor{v}, err }

func yes(m *model) []*model {
	if m == nil || len(m.shape) > backend.MaxRank {
		return nil
	}
	return []*model{m}
}

const most = 400 // elements of a model

// randomStep returns a view of m, allowed or not, that has not too many elements.
func randomStep(r *rand.Rand, m *model) step {
	rank := len(m.shape)
	axis := between(r, -rank, max(rank-1, 0))
	if r.IntN(20) == 0 {
		axis = between(r, -rank-2, rank+1)
	}
	a, ok := m.axis(axis)
	length := 0
	if ok {
		length = m.shape[a]
	}
	switch r.IntN(20) {
	case 0, 1:
		return sliceStep(r, m)
	case 2:
		index := between(r, -length-1, length)
		s := step{
			text: fmt.Sprintf("Select(%d, %d)", axis, index),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Select(axis, index)) },
		}
		if ok && index >= -length && index < length {
			s.want = yes(m.drop(a, (index+length)%length))
		}
		return s
	case 3:
		start, n := between(r, -length-1, length+1), between(r, -1, length+1)
		s := step{
			text: fmt.Sprintf("Narrow(%d, %d, %d)", axis, start, n),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Narrow(axis, start, n)) },
		}
		from := start
		if from < 0 {
			from += length
		}
		if ok && from >= 0 && from <= length && n >= 0 && from+n <= length {
			s.want = yes(m.pick(a, span(from, from+n)))
		}
		return s
	case 4:
		other := between(r, -rank-1, rank)
		s := step{
			text: fmt.Sprintf("Transpose(%d, %d)", axis, other),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Transpose(axis, other)) },
		}
		if b, fine := m.axis(other); ok && fine {
			order := span(0, rank)
			order[a], order[b] = order[b], order[a]
			s.want = yes(m.permute(order))
		}
		return s
	case 5:
		order := span(0, rank)
		slices.Reverse(order)
		return step{
			text: "T()", want: yes(m.permute(order)),
			ask: func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.T(), nil) },
		}
	case 6:
		s := step{text: "MT()", ask: func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.MT()) }}
		if rank >= 2 {
			order := span(0, rank)
			order[rank-1], order[rank-2] = rank-2, rank-1
			s.want = yes(m.permute(order))
		}
		return s
	case 7:
		order := r.Perm(rank)
		for i := range order {
			if r.IntN(3) == 0 {
				order[i] -= rank
			}
		}
		switch r.IntN(8) {
		case 0:
			order = append(order, 0)
		case 1:
			if rank > 0 {
				order[0] = axis
			}
		}
		s := step{
			text: fmt.Sprintf("Permute(%v)", order),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Permute(order...)) },
		}
		if full, fine := m.axes(order); fine && len(full) == rank {
			s.want = yes(m.permute(full))
		}
		return s
	case 8, 9, 10:
		shape := randomFactors(r, len(m.at))
		if r.IntN(3) == 0 && len(shape) > 0 {
			shape[r.IntN(len(shape))] = -1
		}
		if r.IntN(6) == 0 {
			shape = append(shape, between(r, -2, 3))
		}
		return step{
			text: fmt.Sprintf("Reshape(%v)", shape), want: yes(m.reshape(shape)),
			ask: func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Reshape(shape...)) },
		}
	case 11:
		other := between(r, -rank-1, rank)
		s := step{
			text: fmt.Sprintf("Flatten(%d, %d)", axis, other),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Flatten(axis, other)) },
		}
		if b, fine := m.axis(other); ok && fine && a <= b {
			s.want = yes(m.reshape(slices.Concat(m.shape[:a], []int{product(m.shape[a : b+1])}, m.shape[b+1:])))
		} else if rank == 0 && (axis == 0 || axis == -1) && (other == 0 || other == -1) {
			s.want = yes(m.reshape([]int{1}))
		}
		return s
	case 12:
		return expandStep(r, m)
	case 13:
		var axes []int
		for i, n := range m.shape {
			if n == 1 && r.IntN(2) == 0 || r.IntN(20) == 0 {
				axes = append(axes, i-rank*r.IntN(2))
			}
		}
		s := step{
			text: fmt.Sprintf("Squeeze(%v)", axes),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Squeeze(axes...)) },
		}
		gone, fine := m.axes(axes)
		if len(axes) == 0 {
			for i, n := range m.shape {
				if n == 1 {
					gone = append(gone, i)
				}
			}
		}
		for _, g := range gone {
			fine = fine && m.shape[g] == 1
		}
		if fine {
			n := m
			slices.Sort(gone)
			for _, g := range slices.Backward(gone) {
				n = n.drop(g, 0)
			}
			s.want = yes(n)
		}
		return s
	case 14:
		at := between(r, -rank-2, rank+1)
		s := step{
			text: fmt.Sprintf("Unsqueeze(%d)", at),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Unsqueeze(at)) },
		}
		to := at
		if to < 0 {
			to += rank + 1
		}
		if to >= 0 && to <= rank {
			s.want = yes(m.insert(to))
		}
		return s
	case 15:
		return splitStep(r, m, axis)
	case 16:
		size, by := between(r, -1, length+1), between(r, 0, 3)
		s := step{
			text: fmt.Sprintf("Unfold(%d, %d, %d)", axis, size, by),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Unfold(axis, size, by)) },
		}
		if ok && size >= 0 && size <= length && by > 0 {
			windows := 0
			for start := 0; start+size <= length; start += by {
				windows++
			}
			shape := append(slices.Clone(m.shape), size)
			shape[a] = windows
			s.want = yes(m.remap(shape, func(i, old []int) {
				copy(old, i[:rank])
				old[a] = i[a]*by + i[rank]
			}))
		}
		return s
	case 17:
		other, offset := between(r, -rank-1, rank), between(r, -3, 3)
		s := step{
			text: fmt.Sprintf("Diagonal(%d, %d, %d)", offset, axis, other),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Diagonal(offset, axis, other)) },
		}
		if b, fine := m.axis(other); ok && fine && a != b {
			var rows []int // along a
			for i := range m.shape[a] {
				if j := i + offset; j >= 0 && j < m.shape[b] {
					rows = append(rows, i)
				}
			}
			rest := slices.DeleteFunc(span(0, rank), func(axis int) bool { return axis == a || axis == b })
			var shape []int
			for _, axis := range rest {
				shape = append(shape, m.shape[axis])
			}
			s.want = yes(m.remap(append(shape, len(rows)), func(i, old []int) {
				for k, axis := range rest {
					old[axis] = i[k]
				}
				old[a] = rows[i[len(rest)]]
				old[b] = old[a] + offset
			}))
		}
		return s
	case 18:
		var axes []int
		for range r.IntN(3) {
			axes = append(axes, between(r, -rank, rank))
		}
		s := step{
			text: fmt.Sprintf("Flip(%v)", axes),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Flip(axes...)) },
		}
		if flipped, fine := m.axes(axes); fine {
			if len(axes) == 0 {
				flipped = span(0, rank)
			}
			n := m
			for _, f := range flipped {
				back := span(0, n.shape[f])
				slices.Reverse(back)
				n = n.pick(f, back)
			}
			s.want = yes(n)
		}
		return s
	}
	if r.IntN(2) == 0 {
		return stridedStep(r, m)
	}
	return typeStep(r, m)
}

// randomFactors returns random lengths with the product n.
func randomFactors(r *rand.Rand, n int) []int {
	var shape []int
	for n > 1 {
		var divisors []int
		for d := 2; d <= n; d++ {
			if n%d == 0 {
				divisors = append(divisors, d)
			}
		}
		d := divisors[r.IntN(len(divisors))]
		shape = append(shape, d)
		n /= d
	}
	if n == 0 {
		shape = []int{between(r, 0, 3), 0}
	}
	for range r.IntN(3) {
		shape = slices.Insert(shape, r.IntN(len(shape)+1), 1)
	}
	r.Shuffle(len(shape), func(i, j int) { shape[i], shape[j] = shape[j], shape[i] })
	return shape
}

// pythonRange lists the indices of Python's start:stop:step for a length; nil stands for an omitted part.
func pythonRange(length int, start, stop *int, step int) []int {
	var out []int
	clamp := func(at *int, absent, low, high int) int {
		if at == nil {
			return absent
		}
		i := *at
		if i < 0 {
			i += length
		}
		return min(max(i, low), high)
	}
	if step > 0 {
		for i := clamp(start, 0, 0, length); i < clamp(stop, length, 0, length); i += step {
			out = append(out, i)
		}
		return out
	}
	for i := clamp(start, length-1, -1, length-1); i > clamp(stop, -1, -1, length-1); i += step {
		out = append(out, i)
	}
	return out
}

// randomRange returns a range and the indices that it has of a length; nil if its step is 0.
func randomRange(r *rand.Rand, length int) (tensor.Range, func(length int) []int) {
	start, stop, by := between(r, -length-2, length+2), between(r, -length-2, length+2), between(r, -3, 3)
	var out tensor.Range
	from, to := &start, &stop
	switch r.IntN(4) {
	case 0:
		out, from, to = tensor.Whole, nil, nil
	case 1:
		out, to = tensor.From(start), nil
	case 2:
		out, from = tensor.UpTo(stop), nil
	case 3:
		out = tensor.FromTo(start, stop)
	}
	switch {
	case r.IntN(2) == 0:
		by = 1
	case by == 0 && r.IntN(4) > 0:
		by = -1
		fallthrough
	default:
		out = out.By(by)
	}
	if by == 0 {
		return out, nil
	}
	return out, func(length int) []int { return pythonRange(length, from, to, by) }
}

func sliceStep(r *rand.Rand, m *model) step {
	var ranges []tensor.Range
	ok := true
	n := m
	axis, added := 0, 0 // axes of m that are dealt with; axes of n in front of them
	rests, taken := 0, 0
	kinds := make([]int, r.IntN(len(m.shape)+2))
	for i := range kinds {
		kinds[i] = r.IntN(12) // 0: an index, 1: a new axis, 2: the rest, else: a range
		if kinds[i] != 1 && kinds[i] != 2 {
			taken++
		}
	}
	left := len(m.shape) - taken
	for _, kind := range kinds {
		length := 0
		if axis < len(m.shape) {
			length = m.shape[axis]
		}
		switch kind {
		case 0:
			index := between(r, -length, length)
			ranges = append(ranges, tensor.Index(index))
			if ok = ok && left >= 0 && index >= -length && index < length; ok {
				n = n.drop(added, (index+length)%length)
			}
			axis++
		case 1:
			ranges = append(ranges, tensor.NewAxis)
			if ok = ok && left >= 0; ok {
				n = n.insert(added)
			}
			added++
		case 2:
			ranges = append(ranges, tensor.Rest)
			rests++
			axis, added = axis+left, added+left
			ok = ok && rests == 1 && left >= 0
		default:
			one, list := randomRange(r, length)
			ranges = append(ranges, one)
			if ok = ok && left >= 0 && list != nil; ok {
				n = n.pick(added, list(length))
			}
			axis, added = axis+1, added+1
		}
		if rests > 1 {
			break
		}
	}
	s := step{
		text: fmt.Sprintf("Slice(%v)", ranges),
		ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Slice(ranges...)) },
	}
	if ok {
		s.want = yes(n)
	}
	return s
}

func expandStep(r *rand.Rand, m *model) step {
	shape := slices.Clone(m.shape)
	for i, n := range shape {
		switch {
		case n == 1 && r.IntN(2) == 0:
			shape[i] = between(r, -1, 4)
		case r.IntN(3) == 0:
			shape[i] = -1
		case r.IntN(20) == 0:
			shape[i] = between(r, -2, 4)
		}
	}
	front := 0
	for range r.IntN(3) {
		shape, front = slices.Insert(shape, 0, between(r, -r.IntN(2), 3)), front+1
	}
	if len(shape) > 0 && r.IntN(20) == 0 {
		shape, front = shape[1:], front-1
	}
	s := step{
		text: fmt.Sprintf("Expand(%v)", shape),
		ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Expand(shape...)) },
	}
	ok := front >= 0
	full := slices.Clone(shape)
	for i := range full {
		if i >= front && ok {
			old := m.shape[i-front]
			if full[i] == -1 {
				full[i] = old
			}
			ok = full[i] == old || old == 1
		}
		ok = ok && full[i] >= 0
	}
	if ok {
		if product(full) > most {
			return expandStep(r, m)
		}
		s.want = yes(m.remap(full, func(i, old []int) {
			for a, n := range m.shape {
				if old[a] = i[front+a]; n == 1 {
					old[a] = 0
				}
			}
		}))
	}
	return s
}

func splitStep(r *rand.Rand, m *model, axis int) step {
	a, ok := m.axis(axis)
	length := 0
	if ok {
		length = m.shape[a]
	}
	if r.IntN(2) == 0 {
		n := between(r, 0, 6)
		s := step{
			text: fmt.Sprintf("Chunk(%d, %d)", axis, n),
			ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return t.Chunk(axis, n) },
		}
		if ok && n > 0 {
			size := (length + n - 1) / n
			for start := 0; start < length; start += size {
				s.want = append(s.want, m.pick(a, span(start, min(start+size, length))))
			}
			for range n {
				if length == 0 {
					s.want = append(s.want, m)
				}
			}
		}
		return s
	}
	var lengths []int
	for left := length; left > 0; {
		n := r.IntN(left + 1)
		lengths = append(lengths, n)
		left -= n
	}
	if length == 0 {
		lengths = make([]int, between(r, 1, 2))
	}
	if r.IntN(5) == 0 {
		lengths[r.IntN(len(lengths))] += between(r, -2, 2)
	}
	s := step{
		text: fmt.Sprintf("Split(%d, %v)", axis, lengths),
		ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return t.Split(axis, lengths...) },
	}
	sum := 0
	for _, n := range lengths {
		ok = ok && n >= 0
		sum += n
	}
	if ok && sum == length {
		start := 0
		for _, n := range lengths {
			s.want = append(s.want, m.pick(a, span(start, start+n)))
			start += n
		}
	}
	return s
}

func stridedStep(r *rand.Rand, m *model) step {
	size := m.dtype.Size()
	var shape, strides []int
	for range r.IntN(4) {
		shape, strides = append(shape, between(r, 0, 3)), append(strides, between(r, -5, 9))
	}
	offset := between(r, -2, m.room/size+1)
	if r.IntN(20) == 0 && len(shape) > 0 {
		shape[0] = -1
	}
	if r.IntN(20) == 0 {
		strides = append(strides, 1)
	}
	s := step{
		text: fmt.Sprintf("AsStrided(%v, %v, %d)", shape, strides, offset),
		ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.AsStrided(shape, strides, offset)) },
	}
	if len(shape) != len(strides) || slices.Contains(shape, -1) {
		return s
	}
	n := &model{dtype: m.dtype, shape: shape, room: m.room}
	for linear := range product(shape) {
		element := offset
		for a := len(shape) - 1; a >= 0; a-- {
			element += linear % shape[a] * strides[a]
			linear /= shape[a]
		}
		if element < 0 || (element+1)*size > m.room {
			return s
		}
		n.at = append(n.at, element*size)
	}
	s.want = yes(n)
	return s
}

func typeStep(r *rand.Rand, m *model) step {
	switch r.IntN(4) {
	case 0:
		s := step{
			text: "Imag", ask: func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Imag()) },
		}
		if part, ok := partType[m.dtype]; ok {
			n := &model{dtype: part, shape: m.shape, room: m.room}
			for _, at := range m.at {
				n.at = append(n.at, at+part.Size())
			}
			s.want = yes(n)
		}
		return s
	case 1:
		n := *m
		if part, ok := partType[m.dtype]; ok {
			n.dtype = part
		}
		return step{
			text: "Real", want: yes(&n),
			ask: func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.Real(), nil) },
		}
	}
	types := []dtype.DType{
		dtype.Int8, dtype.Float16, dtype.Int32, dtype.Float64, dtype.Complex64, dtype.Complex64, dtype.Complex128, dtype.Bool,
		dtype.Invalid,
	}
	d := types[r.IntN(len(types))]
	s := step{
		text: fmt.Sprintf("ViewAs(%v)", d),
		ask:  func(t *tensor.Tensor) ([]*tensor.Tensor, error) { return one(t.ViewAs(d)) },
	}
	if d.Valid() && len(m.at)*m.dtype.Size()/d.Size() > most {
		return typeStep(r, m)
	}
	s.want = yes(m.viewAs(d))
	return s
}

var partType = map[dtype.DType]dtype.DType{dtype.Complex64: dtype.Float32, dtype.Complex128: dtype.Float64}

// agree describes how a tensor differs from its model, by arithmetic alone: it does not read the memory.
func agree(t *tensor.Tensor, m *model) error {
	if t.DType() != m.dtype || !slices.Equal(t.Shape(), m.shape) {
		return fmt.Errorf("it is %v, want %v%v", t.Brief(), m.dtype, m.shape)
	}
	shape, strides, size := t.Shape(), t.Strides(), m.dtype.Size()
	if t.Offset() < 0 || t.Offset()*size > m.room {
		return fmt.Errorf("its offset is %d, outside of the %d bytes of its storage", t.Offset(), m.room)
	}
	if len(strides) != len(shape) || t.Len() != len(m.at) {
		return fmt.Errorf("it has %d strides for %d axes, %d elements for %d", len(strides), len(shape), t.Len(), len(m.at))
	}
	inOrder := true
	for linear, want := range m.at {
		element, rest := t.Offset(), linear
		for a := len(shape) - 1; a >= 0; a-- {
			element += rest % shape[a] * strides[a]
			rest /= shape[a]
		}
		if element*size != want {
			return fmt.Errorf("its element %d is at byte %d, want %d", linear, element*size, want)
		}
		if want < 0 || want+size > m.room {
			return fmt.Errorf("its element %d is at byte %d, outside of the storage", linear, want)
		}
		inOrder = inOrder && want == m.at[0]+linear*size
	}
	if t.IsContiguous() != inOrder {
		return fmt.Errorf("IsContiguous is %v", t.IsContiguous())
	}
	return nil
}

func TestViewProgramsAgreeWithNestedIndices(t *testing.T) {
	p := hostPlace(t)
	seed := testkit.Seed(t)
	data := make([]int32, 320)
	allowed, refused := 0, 0
	for program := range uint64(100_000) {
		r := rand.New(rand.NewPCG(seed, program))
		var shape []int
		for range r.IntN(5) {
			shape = append(shape, between(r, 0, 4))
			if r.IntN(3) == 0 {
				shape[len(shape)-1] = 1
			}
		}
		offset := r.IntN(min(len(data)-product(shape), 60))
		x, err := tensor.ViewStrided(p, data, offset, shape, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{dtype: dtype.Int32, shape: shape, room: 4 * len(data)}
		for i := range product(shape) {
			m.at = append(m.at, 4*(offset+i))
		}
		v := x
		history := []string{fmt.Sprintf("%v at %d", x.Brief(), offset)}
		for range between(r, 1, 8) {
			s := randomStep(r, m)
			history = append(history, s.text)
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("program %d: %s: %s", program, strings.Join(history, " | "), fmt.Sprintf(format, args...))
			}
			shape, strides, offset := v.Shape(), v.Strides(), v.Offset()
			got, err := s.ask(v)
			switch {
			case (err == nil) != (s.want != nil):
				fail("error %v, the model %v", err, s.want != nil)
			case err != nil && (!strings.HasPrefix(err.Error(), "tensor: ") || !strings.Contains(err.Error(), v.Brief())):
				fail("the error %q does not name the tensor", err)
			case !slices.Equal(v.Shape(), shape) || !slices.Equal(v.Strides(), strides) || v.Offset() != offset:
				fail("the tensor itself changed")
			}
			if err != nil {
				refused++
				continue
			}
			allowed++
			if len(got) != len(s.want) {
				fail("%d views, want %d", len(got), len(s.want))
			}
			for i := range got {
				if err := agree(got[i], s.want[i]); err != nil {
					fail("view %d: %v", i, err)
				}
				if got[i].Owns() || !got[i].SameStorage(x) {
					fail("view %d is no borrower of the storage", i)
				}
			}
			i := r.IntN(len(got))
			v, m = got[i], s.want[i]
		}
		x.Release()
	}
	if allowed < 150_000 || refused < 30_000 {
		t.Errorf("%d views were allowed and %d refused: the programs are too tame", allowed, refused)
	}
}

// An axis of one element keeps its stride, however long the step.
func TestSliceOfOneKeepsTheStride(t *testing.T) {
	p := placeOn(t, drivertest.OpenSim(t, 0))
	x := empty(t, p, 4, 6)
	v, err := x.Slice(tensor.FromTo(1, 2).By(math.MaxInt))
	testkit.Must(t, err)
	if !slices.Equal(v.Strides(), x.Strides()) || !slices.Equal(v.Shape(), []int{1, 6}) || v.Offset() != 6 {
		t.Errorf("strides %v, shape %v, offset %d", v.Strides(), v.Shape(), v.Offset())
	}
	x.Release()
}
