package driver_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// Every kind of argument has the size of its parameter, and the value's bytes in the order of the machine.
func TestArgsAreTheBytesOfTheirValues(t *testing.T) {
	four := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	eight := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	structure := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	for name, c := range map[string]struct {
		arg  driver.Arg
		want []byte
	}{
		"pointer":        {driver.PointerArg(0x1122334455667788), eight(0x1122334455667788)},
		"int32":          {driver.Int32Arg(-2), four(0xfffffffe)},
		"uint32":         {driver.Uint32Arg(0x11223344), four(0x11223344)},
		"int64":          {driver.Int64Arg(-2), eight(0xfffffffffffffffe)},
		"uint64":         {driver.Uint64Arg(0x1122334455667788), eight(0x1122334455667788)},
		"float32":        {driver.Float32Arg(1.5), four(math.Float32bits(1.5))},
		"float64":        {driver.Float64Arg(1.5), eight(math.Float64bits(1.5))},
		"structure":      {driver.StructArg(structure), structure},
		"small":          {driver.StructArg(structure[:3]), structure[:3]},
		"empty":          {driver.StructArg(nil), nil},
		"the zero value": {driver.Arg{}, nil},
	} {
		if got := c.arg.Bytes(); !slices.Equal(got, c.want) || c.arg.Size() != len(c.want) {
			t.Errorf("%s: %d bytes, %x; want %x", name, c.arg.Size(), got, c.want)
		}
	}
}

func TestRangesOverlapIfTheyShareAByte(t *testing.T) {
	const end = ^driver.Pointer(0)
	for _, c := range []struct {
		a, b driver.Range
		want bool
	}{
		{driver.Range{Ptr: 100, Size: 10}, driver.Range{Ptr: 100, Size: 10}, true},
		{driver.Range{Ptr: 100, Size: 10}, driver.Range{Ptr: 104, Size: 1}, true},
		{driver.Range{Ptr: 100, Size: 10}, driver.Range{Ptr: 109, Size: 5}, true},
		{driver.Range{Ptr: 100, Size: 10}, driver.Range{Ptr: 110, Size: 5}, false},
		{driver.Range{Ptr: 100, Size: 10}, driver.Range{Ptr: 300, Size: 500}, false},
		{driver.Range{Ptr: 100, Size: 10}, driver.Range{Ptr: 104, Size: 0}, false},
		{driver.Range{Ptr: 100, Size: 0}, driver.Range{Ptr: 100, Size: 0}, false},
		{driver.Range{Ptr: 100, Size: 1}, driver.Range{Ptr: 100, Size: 1}, true},
		{driver.Range{Ptr: end - 9, Size: 10}, driver.Range{Ptr: end, Size: 1}, true},
		{driver.Range{Ptr: end - 9, Size: 10}, driver.Range{Ptr: 0, Size: 1}, false},
	} {
		if there, back := c.a.Overlaps(c.b), c.b.Overlaps(c.a); there != c.want || back != c.want {
			t.Errorf("%+v and %+v overlap: %v, and in the other order %v; want %v", c.a, c.b, there, back, c.want)
		}
	}
}
