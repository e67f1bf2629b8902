package tensor

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
)

// counting counts the copies from the device and their bytes.
type counting struct {
	driver.Stream
	copies int
	bytes  int64
}

func (c *counting) CopyOut(dst []byte, src driver.Pointer) error {
	c.copies++
	c.bytes += int64(len(dst))
	return c.Stream.CopyOut(dst, src)
}

// However large a tensor is, only the elements shown leave the device, in few copies.
func TestPrintReadsLittle(t *testing.T) {
	d := drivertest.OpenSim(t, 0)
	const size = 4 << 30
	ptr := drivertest.Alloc(t, d, size)
	if err := d.DefaultStream().Fill(ptr, 0, size); err != nil {
		t.Fatal(err)
	}
	// The first and the last element are told apart.
	for at, x := range map[int64]float32{0: 1, size - 4: 2} {
		if err := d.DefaultStream().CopyIn(ptr+driver.Pointer(at), bytesOf([]float32{x})); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		shape   []int
		strides []int
		copies  int
		bytes   int64
		first   string
		last    string
	}{
		{"one axis", []int{1 << 30}, nil, 2, 6 * 4, "tensor([1., 0., 0.,  ..., 0., 0., 2.]", ""},
		{"a matrix", []int{1 << 15, 1 << 15}, nil, 8, 36 * 4, "tensor([[1., 0., 0.,  ..., 0., 0., 0.],\n", "0., 0., 2.]], device='sim')"},
		{"its transpose", []int{1 << 15, 1 << 15}, []int{1, 1 << 15}, 8, 36 * 4, "tensor([[1., ", "0., 0., 2.]], device='sim')"},
		{"four axes", []int{1 << 8, 1 << 8, 1 << 14, 1}, nil, 44, 216 * 4, "tensor([[[[1.],\n", "[2.]]]], device='sim')"},
		{"short rows", []int{1 << 28, 4}, nil, 2, 24 * 4, "tensor([[1., 0., 0., 0.],\n", "[0., 0., 0., 2.]], device='sim')"},
		{"every second", []int{1 << 29}, []int{2}, 2, 2 * 5 * 4, "tensor([1., 0., 0.,  ..., 0., 0., 0.]", ""},
		{"the same", []int{1 << 30, 1 << 5}, []int{0, 1}, 1, 32 * 4, "tensor([[1., ", ""},
		{"not shortened, a page apart", []int{500}, []int{1024}, 1, (499*1024 + 1) * 4, "tensor([1., 0.,", ""},
		{"not shortened, farther", []int{500}, []int{1025}, 500, 500 * 4, "tensor([1., 0.,", ""},
		{"none", []int{1 << 30, 0}, nil, 0, 0, "tensor([]", ""},
		{"a single one", []int{}, nil, 1, 4, "tensor(1.,", ""},
	} {
		s := &counting{Stream: d.DefaultStream()}
		v := printAt(t, printPlace(d, s), ptr, dtype.Float32, c.shape, c.strides)
		text := v.String()
		if s.copies != c.copies || s.bytes != c.bytes {
			t.Errorf("%s: %d copies of %d bytes, want %d of %d", c.name, s.copies, s.bytes, c.copies, c.bytes)
		}
		if !strings.HasPrefix(text, c.first) || !strings.HasSuffix(text, c.last) {
			t.Errorf("%s:\n%s", c.name, text)
		}
	}
}

// Printing comes after the work that writes the tensor, on whichever stream that is queued, on devices of either kind.
func TestPrintWaitsForTheLastWrite(t *testing.T) {
	d := sim.New(sim.Options{Completion: sim.OnDemand})
	defer d.Close()
	ptr := drivertest.Alloc(t, d, 4)
	other := drivertest.NewStream(t, d)
	v := printAt(t, printPlace(d, nil), ptr, dtype.Uint8, []int{4}, nil)
	if err := v.Use(other, true); err != nil {
		t.Fatal(err)
	}
	if err := other.Fill(ptr, 7, 4); err != nil {
		t.Fatal(err)
	}
	wantText(t, "written on another stream", v.String(), "tensor([7, 7, 7, 7], device='sim', dtype=torch.uint8)")

	p := printHost(t)
	const size = 1 << 16
	ptr = drivertest.Alloc(t, p.Device(), size)
	other = drivertest.NewStream(t, p.Device())
	v = printAt(t, p, ptr, dtype.Uint8, []int{size}, nil)
	if err := v.Use(other, true); err != nil {
		t.Fatal(err)
	}
	if err := other.Fill(ptr, 9, size); err != nil {
		t.Fatal(err)
	}
	wantText(t, "on the host", v.String(), "tensor([9, 9, 9,  ..., 9, 9, 9], dtype=torch.uint8)")
}
