package tensor_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// holds checks a tensor's elements, row by row.
func holds[T dtype.Element](t *testing.T, what string, x *tensor.Tensor, want ...T) {
	t.Helper()
	got, err := tensor.ToSlice[T](x)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %v, %v; want %v", what, got, err, want)
	}
}

// A remote device is one whose memory Go code cannot access, and that copies to others of its kind.
type remote struct{ driver.Device }

func (remote) Visible() driver.Visible { return nil }
func (r remote) Peers() driver.Peers   { return remotePeers{r.Device.Peers()} }

type remotePeers struct{ driver.Peers }

func (r remotePeers) CopyPeer(
	s driver.Stream, dst driver.Pointer, to driver.Device, src driver.Pointer, from driver.Device, n int64,
) error {
	return r.Peers.CopyPeer(s, dst, to.(remote).Device, src, from.(remote).Device, n)
}

// Devices of one driver copy to each other: after the work on the source, and before the source may be changed.
func TestCopiesBetweenPeers(t *testing.T) {
	var places []*tensor.Place
	for range 2 {
		places = append(places, tensortest.On(t, remote{drivertest.OpenDevice(t, "host:total=256MiB")}))
	}
	const n = 1 << 20
	for i := range int8(10) {
		x := tensor.Must(tensor.FromSlice(places[0], make([]int8, n)))
		testkit.Must(t, places[0].Stream().Fill(x.Array().Ptr, byte(i), n))
		y := tensor.Must(x.To(places[1]))
		testkit.Must(t, places[0].Stream().Fill(x.Array().Ptr, 99, n))
		holds(t, "a copy", y, slices.Repeat([]int8{i}, n)...)
		if y.SameStorage(x) || !y.Place().SameDevice(places[1]) {
			t.Errorf("the copy is %v", y)
		}
		x.Release()
		y.Release()
	}
	empty := tensor.Must(tensor.FromSlice(places[0], []int8{}))
	nothing := tensor.Must(empty.To(places[1]))
	holds[int8](t, "a copy of nothing", nothing)
	empty.Release()
	nothing.Release()
}

// TestCopiesBetweenDevices takes a transposed view from every kind of device to every other, with and without another
// type.
func TestCopiesBetweenDevices(t *testing.T) {
	specs := []string{"host", "sim:total=1GiB", "host", "sim:total=1GiB"}
	var places []*tensor.Scope
	for _, spec := range specs {
		places = append(places, tensortest.Scope(t, spec))
	}
	for _, from := range places {
		x := tensor.Must(tensor.FromSlice(from.Place, []int16{1, 2, 3, 4, 5, 6}, 2, 3)).T()
		for _, to := range places {
			clone := tensor.Must(x.Clone(to.Place))
			holds(t, from.String()+" to "+to.String(), clone, int16(1), 4, 2, 5, 3, 6)
			if !clone.IsContiguous() || !clone.Place().SameDevice(to.Place) || clone.SameStorage(x) {
				t.Errorf("a clone from %v to %v: contiguous %v, at %v", from, to, clone.IsContiguous(), clone.Place())
			}
			holds(t, "cast", tensor.Must(x.Cast(to.Place, dtype.Float32)), float32(1), 4, 2, 5, 3, 6)
			moved := tensor.Must(x.To(to.Place))
			if shares := moved.SameStorage(x); shares != (from == to) {
				t.Errorf("To from %v to %v shares: %v", from, to, shares)
			}
			into := tensor.Must(tensor.Zeros(to.Place, dtype.Float64, 2, 3, 2))
			if err := into.CopyFrom(nil, x); err != nil { // broadcast, converted, from wherever it is
				t.Error(err)
			}
			holds(t, "copied into", into, 1.0, 4, 2, 5, 3, 6, 1, 4, 2, 5, 3, 6)
			same := tensor.Must(tensor.Empty(to.Place, dtype.Int16, 3, 2))
			if err := same.CopyFrom(nil, x); err != nil {
				t.Error(err)
			}
			holds(t, "copied straight", same, int16(1), 4, 2, 5, 3, 6)
		}
	}
}

// TestOwnersOfWhatMayBeShared: whether a result is a copy or not, it outlives the tensor that it came from.
func TestOwnersOfWhatMayBeShared(t *testing.T) {
	p := tensortest.Scope(t, "host").Unscoped()
	x := tensor.Must(tensor.FromSlice(p, []float32{1, 2, 3, 4}, 2, 2))
	shared := []*tensor.Tensor{tensor.Must(x.Contiguous(p)), tensor.Must(x.To(p)), tensor.Must(x.Cast(nil, dtype.Float32))}
	copied := tensor.Must(x.T().Contiguous(nil))
	if copied.SameStorage(x) {
		t.Error("a transposed view is contiguous without a copy")
	}
	x.Release()
	for _, y := range shared {
		holds(t, "shared", y, float32(1), 2, 3, 4)
		y.Release()
	}
	holds(t, "copied", copied, float32(1), 3, 2, 4)
	copied.Release()
}

// overlapping returns random data, and the length and two places of parts of it.
func overlapping(r *rand.Rand) (data []int32, length, to, from int) {
	n := 2 + r.IntN(40)
	data = make([]int32, n)
	for i := range data {
		data[i] = r.Int32()
	}
	length = 1 + r.IntN(n)
	return data, length, r.IntN(n - length + 1), r.IntN(n - length + 1)
}

// TestCopyFromOverlaps: a copy has the content from before the call, in whichever direction the two overlap.
func TestCopyFromOverlaps(t *testing.T) {
	p := tensortest.Scope(t, "host")
	seed := testkit.Seed(t)
	r := rand.New(rand.NewPCG(seed, seed))
	for range 300 {
		data, length, to, from := overlapping(r)
		x := tensor.Must(tensor.FromSlice(p.Place, data))
		src, dst := tensor.Must(x.Narrow(0, from, length)), tensor.Must(x.Narrow(0, to, length))
		want := slices.Clone(data)
		copy(want[to:to+length], data[from:from+length])
		if r.IntN(2) == 0 {
			src = tensor.Must(src.Flip(0))
			slices.Reverse(want[to : to+length])
		}
		if err := dst.CopyFrom(nil, src); err != nil {
			t.Fatal(err)
		}
		holds(t, "overlapping", x, want...)
	}
}

func TestFills(t *testing.T) {
	for _, spec := range []string{"host", "sim:total=1GiB"} {
		p := tensortest.Scope(t, spec)
		holds(t, "zeros", tensor.Must(tensor.Zeros(p.Place, dtype.Int8, 3)), int8(0), 0, 0)
		x := tensor.Must(tensor.Full(p.Place, dtype.BFloat16, 1.5, 2, 2))
		column, err := x.Select(1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := column.Fill(nil, dtype.ScalarOf(int8(-2))); err != nil {
			t.Fatal(err)
		}
		holds(t, "a column filled", x, dtype.ToBF16(-2), dtype.ToBF16(1.5), dtype.ToBF16(-2), dtype.ToBF16(1.5))
		if v, err := x.At(-1, 1); err != nil || v.Float64() != 1.5 {
			t.Errorf("At: %v, %v", v, err)
		}
		if v, err := tensor.Must(tensor.FromScalar(p.Place, dtype.Complex64, 2i)).Item(); err != nil || v.Complex128() != 2i {
			t.Errorf("Item: %v, %v", v, err)
		}
		holds[float32](t, "nothing", tensor.Must(tensor.Zeros(p.Place, dtype.Float32, 3, 0)))
	}
}

func TestDataIsTheMemoryItself(t *testing.T) {
	p := tensortest.Scope(t, "host")
	x := tensor.Must(tensor.Zeros(p.Place, dtype.Float32, 4))
	data, err := tensor.Data[float32](x)
	if err != nil {
		t.Fatal(err)
	}
	data[2] = 7
	holds(t, "written through Data", x, float32(0), 0, 7, 0)
}

// TestCopyErrorsNameBothSides: every refusal names the request and both tensors.
func TestCopyErrorsNameBothSides(t *testing.T) {
	p, other := tensortest.Scope(t, "host"), tensortest.Scope(t, "sim:total=1GiB")
	x := tensor.Must(tensor.Zeros(p.Place, dtype.Float32, 2, 3))
	wide, err := x.Expand(4, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	far := tensor.Must(tensor.Zeros(other.Place, dtype.Float32, 2, 3))
	_, slice := tensor.ToSlice[float64](x)
	_, data := tensor.Data[float32](x.T())
	_, farData := tensor.Data[float32](far)
	_, from := tensor.FromSlice(p.Place, []int8{1, 2, 3}, 2, 2)
	_, negative := tensor.Empty(p.Place, dtype.Int8, 2, -1)
	_, huge := tensor.Empty(p.Place, dtype.Float64, 1<<40, 1<<40)
	_, deep := tensor.Empty(p.Place, dtype.Int8, make([]int, 17)...)
	_, at := x.At(0, 3)
	_, few := x.At(0)
	_, item := x.Item()
	_, outside := tensor.FromStorage(p.Place, x.Storage(), dtype.Float32, 1, []int{2, 3}, nil)
	_, noNumber := tensor.Full(p.Place, dtype.Int8, "7", 2)
	for name, c := range map[string]struct {
		err  error
		says []string
	}{
		"shapes":        {x.CopyFrom(nil, x.T()), []string{"float32[3 2]", "float32[2 3]"}},
		"other device":  {x.Fill(other.Place, 1), []string{"float32[2 3]", "host", "sim"}},
		"broadcast dst": {wide.Fill(nil, 1), []string{"float32[4 2 3]", "axis 0"}},
		"slice type":    {slice, []string{"float32[2 3]", "float64"}},
		"data strides":  {data, []string{"float32[3 2]", "[1 3]"}},
		"data device":   {farData, []string{"float32[2 3]", "sim"}},
		"slice length":  {from, []string{"3 elements", "int8[2 2]", "4"}},
		"negative":      {negative, []string{"[2 -1]"}},
		"too large":     {huge, []string{"float64", "1099511627776"}},
		"too many axes": {deep, []string{"17 axes", "16"}},
		"index":         {at, []string{"float32[2 3]", "index 3", "length 3"}},
		"indices":       {few, []string{"float32[2 3]", "1 indices"}},
		"item":          {item, []string{"float32[2 3]", "6 elements"}},
		"storage":       {outside, []string{"float32[2 3]", "24 bytes"}},
		"no number":     {noNumber, []string{"int8[2]", "string"}},
		"read length":   {x.Read(make([]byte, 23)), []string{"float32[2 3]", "24", "23"}},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, s := range append(c.says, "tensor: ") {
			if !strings.Contains(c.err.Error(), s) {
				t.Errorf("%s: %q does not say %q", name, c.err, s)
			}
		}
	}
}

// Memory of Go may begin at any address: ToSlice copies it, and Data, which does not, refuses it.
func TestMemoryThatIsNotAligned(t *testing.T) {
	p := tensortest.Host(t)
	odd := bytes.Repeat([]byte{1}, 64)[1:13]
	s, err := tensor.FromBytes(p, odd, nil)
	testkit.Must(t, err)
	defer s.Release()
	x := tensor.Must(tensor.FromStorage(p, s, dtype.Int32, 0, []int{3}, nil))
	defer x.Release()
	holds(t, "the copy", x, int32(0x01010101), 0x01010101, 0x01010101)
	if data, err := tensor.Data[int32](x); err == nil || !strings.Contains(err.Error(), "not aligned") {
		t.Errorf("Data: %v, %v", data, err)
	}
}
