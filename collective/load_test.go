package collective

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// counting returns 0, 1, 2 ... of a shape.
func counting(p *tensor.Place, shape ...int) *tensor.Tensor {
	n := 1
	for _, length := range shape {
		n *= length
	}
	data := make([]int32, n)
	for i := range data {
		data[i] = int32(i)
	}
	return tensor.Must(tensor.FromSlice(p, data, shape...))
}

// checkpoint is a file of four tensors that count from 0.
func checkpoint(t *testing.T) safetensors.Checkpoint {
	t.Helper()
	p := tensortest.Scope(t, "host")
	tensors := map[string]*tensor.Tensor{}
	for name, shape := range map[string][]int{
		"embed.weight": {7, 2}, "layers.0.up.weight": {5, 2}, "layers.0.down.weight": {2, 5}, "norm.weight": {3},
	} {
		tensors[name] = counting(p.Place, shape...)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := safetensors.WriteFile(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(path, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

// holds fails unless t has a shape and elements, which are released.
func holds(t *tensor.Tensor, shape []int, elements ...int32) error {
	defer t.Release()
	got, err := tensor.ToSlice[int32](t)
	if err == nil && (!slices.Equal(t.Shape(), shape) || !slices.Equal(got, elements)) {
		err = fmt.Errorf("%s %v, want %v %v", t.Brief(), got, shape, elements)
	}
	return err
}

func TestLoad(t *testing.T) {
	ck := checkpoint(t)
	plan := Plan{Rules: []Rule{
		{"*.up.weight", Along(0)}, {"layers.*.weight", Along(-1)}, {"norm.*", Omit}, {"*", Replicate},
	}}
	on(t, local(t, "host", 3), func(c *Communicator) error {
		got, err := Load(context.Background(), c, nil, ck, plan)
		if err != nil {
			return err
		}
		if len(got) != 3 {
			return fmt.Errorf("loaded %v", slices.Sorted(maps.Keys(got)))
		}
		up := [][]int32{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}[c.Rank()]
		down := [][]int32{{0, 1, 5, 6}, {2, 3, 7, 8}, {4, 9}}[c.Rank()]
		return errors.Join(
			holds(got["embed.weight"], []int{7, 2}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
			holds(got["layers.0.up.weight"], []int{len(up) / 2, 2}, up...),
			holds(got["layers.0.down.weight"], []int{2, len(down) / 2}, down...),
		)
	})
}

// More ranks than indices: the last have tensors of no element.
func TestLoadNothing(t *testing.T) {
	ck := checkpoint(t)
	plan := Plan{Rules: []Rule{{"norm.weight", Along(0)}}, Default: Omit}
	on(t, local(t, "host", 4), func(c *Communicator) error {
		got, err := Load(context.Background(), c, c.place, ck, plan)
		if err != nil {
			return err
		}
		if c.Rank() == 3 {
			return holds(got["norm.weight"], []int{0})
		}
		return holds(got["norm.weight"], []int{1}, int32(c.Rank()))
	})
}

func TestLoadRefused(t *testing.T) {
	ck := checkpoint(t)
	c := local(t, "host", 1)[0]
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		plan Plan
		kind error
		text string
	}{
		"pattern": {context.Background(), Plan{Rules: []Rule{{"[", Omit}}}, ErrConfig, `pattern "["`},
		"axis":    {context.Background(), Plan{Rules: []Rule{{"norm.weight", Along(1)}}}, ErrShape, "norm.weight, along axis 1: shapes do not fit: a tensor of shape [3] has no axis 1"},
		"context": {over, Plan{}, context.Canceled, "collective: Load: "},
	} {
		got, err := Load(test.ctx, c, nil, ck, test.plan)
		if got != nil || !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPart(t *testing.T) {
	for n := range 20 {
		for size := 1; size < 8; size++ {
			next := 0
			for rank := range size {
				start, length := Part(n, rank, size)
				if start != next || length != n/size && length != n/size+1 || rank > 0 && length > n/size && rank >= n%size {
					t.Errorf("Part(%d, %d, %d) is %d, %d", n, rank, size, start, length)
				}
				next += length
			}
			if next != n {
				t.Errorf("the parts of %d for %d ranks are %d", n, size, next)
			}
		}
	}
}

func TestDistribute(t *testing.T) {
	for name, comms := range map[string]func(testing.TB) []*Communicator{
		"local":     func(t testing.TB) []*Communicator { return local(t, "host", 3) },
		"simulated": func(t testing.TB) []*Communicator { return local(t, "sim:total=1GiB", 3) },
		"joined":    func(t testing.TB) []*Communicator { return joined(t, 3) },
	} {
		t.Run(name, func(t *testing.T) { on(t, comms(t), distributes) })
	}
}

func distributes(c *Communicator) error {
	const root = 1
	share := func(where Placement) (*tensor.Tensor, error) {
		var whole *tensor.Tensor
		if c.Rank() == root {
			whole = counting(c.place, 2, 5)
			defer whole.Release()
		}
		return Distribute(context.Background(), c, nil, whole, where, root)
	}
	all, err := share(Replicate)
	if err != nil {
		return err
	}
	if err := holds(all, []int{2, 5}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9); err != nil {
		return err
	}
	rows, err := share(Along(0))
	if err != nil {
		return err
	}
	row := [][]int32{{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}, {}}[c.Rank()]
	if err := holds(rows, []int{len(row) / 5, 5}, row...); err != nil {
		return err
	}
	columns, err := share(Along(-1))
	if err != nil {
		return err
	}
	column := [][]int32{{0, 1, 5, 6}, {2, 3, 7, 8}, {4, 9}}[c.Rank()]
	if err := holds(columns, []int{2, len(column) / 2}, column...); err != nil {
		return err
	}
	// If root cannot distribute a tensor, every rank gets an error, and the communicator stays usable.
	if _, err := share(Along(2)); !errors.Is(err, ErrShape) {
		return fmt.Errorf("an axis that is not there: %w", err)
	}
	if _, err := Distribute(context.Background(), c, nil, nil, Replicate, root); err == nil {
		return errors.New("the undefined tensor was distributed")
	}
	for name, err := range map[string]error{
		"root":  second(Distribute(context.Background(), c, nil, nil, Replicate, 3)),
		"omit":  second(Distribute(context.Background(), c, nil, nil, Omit, root)),
		"group": c.Group(func() error { return second(Distribute(context.Background(), c, nil, nil, Replicate, root)) }),
	} {
		if err == nil {
			return fmt.Errorf("%s: no error", name)
		}
	}
	x := tensor.Must(tensor.Full(c.place, dtype.Int64, c.Rank(), 1))
	defer x.Release()
	if err := c.AllReduce(nil, Sum, x, x); err != nil {
		return err
	}
	if v, err := x.Item(); err != nil || v.Int64() != 3 {
		return fmt.Errorf("afterwards: %v, %w", v, err)
	}
	return nil
}

func second(_ *tensor.Tensor, err error) error { return err }
