package collective

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/tensor"
)

// TestDefect05_CollectivesCompareAddresses: tensors that look into one Go slice, each in a storage of its own, are
// refused where they overlap and accepted where they are the same elements, as views of one storage are.
func TestDefect05_CollectivesCompareAddresses(t *testing.T) {
	on(t, local(t, "host", 2), func(c *Communicator) error {
		p := c.place.Scope()
		defer p.Close()
		data := []float32{1, 2, 3, 4}
		view := func(from, to int) *tensor.Tensor { return tensor.Must(tensor.View(p.Place, data[from:to])) }
		if err := c.AllReduce(nil, Sum, view(0, 3), view(1, 4)); !errors.Is(err, ErrLayout) {
			return fmt.Errorf("all-reduce of what overlaps: %w", err)
		}
		other := 1 - c.Rank()
		if err := c.AllGather(nil, view(0, 4), view(2*other, 2*other+2)); !errors.Is(err, ErrLayout) {
			return fmt.Errorf("all-gather of another rank's part: %w", err)
		}
		x := view(0, 4)
		if err := c.AllReduce(nil, Sum, x, view(0, 4)); err != nil {
			return err
		}
		if err := want(c, x, 2, 4, 6, 8); err != nil {
			return fmt.Errorf("all-reduce in place: %w", err)
		}
		data[2*c.Rank()] = float32(10 + c.Rank())
		if err := c.AllGather(nil, x, view(2*c.Rank(), 2*c.Rank()+2)); err != nil {
			return err
		}
		if err := want(c, x, 10, 4, 11, 8); err != nil {
			return fmt.Errorf("all-gather in place: %w", err)
		}
		return nil
	})
}
