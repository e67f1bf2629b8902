// Package arrowtest shows that pinned.ArrowAllocator serves Apache Arrow. It is a module of its own, so that the main
// one does not depend on Arrow:
//
//	cd mem/pinned/arrowtest && go test ./...
package arrowtest

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

var _ memory.Allocator = pinned.ArrowAllocator{}

func open(t *testing.T) (driver.Device, *pinned.Allocator) {
	t.Helper()
	d, err := driver.Open("host")
	if err != nil {
		t.Fatal(err)
	}
	a, err := pinned.New(d, pinned.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, a
}

// An array is built in page-locked memory, grows on the way, goes to the device as it is, and leaves nothing behind.
func TestInt64Array(t *testing.T) {
	d, a := open(t)
	checked := memory.NewCheckedAllocator(pinned.Arrow(a))
	defer checked.AssertSize(t, 0)

	const n = 10_000
	build := array.NewInt64Builder(checked)
	for i := range int64(n) {
		if i%7 == 0 {
			build.AppendNull()
		} else {
			build.Append(i * i)
		}
	}
	numbers := build.NewInt64Array()
	build.Release()
	if numbers.Len() != n || numbers.NullN() != (n+6)/7 {
		t.Fatalf("%d numbers, %d of them null", numbers.Len(), numbers.NullN())
	}
	for i := range n {
		if numbers.IsNull(i) != (i%7 == 0) || numbers.IsValid(i) && numbers.Value(i) != int64(i*i) {
			t.Fatalf("number %d is %v, null %t", i, numbers.Value(i), numbers.IsNull(i))
		}
	}
	for i, buffer := range numbers.Data().Buffers() {
		if !d.Pinned().IsPinned(buffer.Bytes()) {
			t.Errorf("buffer %d is not page-locked", i)
		}
	}

	values := numbers.Data().Buffers()[1].Bytes()
	s := drivertest.NewStream(t, d)
	on := drivertest.Alloc(t, d, int64(len(values)))
	if err := d.Pinned().CopyInAsync(s, on, values); err != nil {
		t.Fatal(err)
	}
	block, ok := a.Find(values)
	if !ok {
		t.Fatal("the values are in no block")
	}
	if err := a.RecordStream(block, s); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(values)
	numbers.Release() // while the device may still read
	got := make([]byte, len(want))
	if err := s.CopyOut(got, on); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("the device has other values")
	}
}

// Strings have offsets and bytes that grow, are cut, and may be empty.
func TestRecord(t *testing.T) {
	_, a := open(t)
	checked := memory.NewCheckedAllocator(pinned.Arrow(a))
	defer checked.AssertSize(t, 0)

	schema := arrow.NewSchema([]arrow.Field{
		{Name: "name", Type: arrow.BinaryTypes.String},
		{Name: "list", Type: arrow.ListOf(arrow.PrimitiveTypes.Float64)},
	}, nil)
	build := array.NewRecordBuilder(checked, schema)
	defer build.Release()
	for round := range 3 {
		names, lists := build.Field(0).(*array.StringBuilder), build.Field(1).(*array.ListBuilder)
		floats := lists.ValueBuilder().(*array.Float64Builder)
		for i := range round * 500 { // the first record is empty
			names.Append(string(make([]byte, i%50)))
			lists.Append(true)
			for j := range i % 5 {
				floats.Append(float64(j))
			}
		}
		record := build.NewRecordBatch()
		if record.NumRows() != int64(round*500) {
			t.Errorf("round %d: %d rows", round, record.NumRows())
		}
		record.Release()
	}
}

func TestBuffer(t *testing.T) {
	_, a := open(t)
	checked := memory.NewCheckedAllocator(pinned.Arrow(a))
	defer checked.AssertSize(t, 0)

	b := memory.NewResizableBuffer(checked)
	for i, size := range []int{0, 1, 64, 65, 5000, 100, 0, 3000} {
		kept := slices.Clone(b.Bytes())
		b.Resize(size)
		if b.Len() != size || !slices.Equal(b.Bytes()[:min(size, len(kept))], kept[:min(size, len(kept))]) {
			t.Errorf("after Resize(%d): %d bytes, or not those that were there", size, b.Len())
		}
		for j := range b.Bytes() {
			b.Bytes()[j] = byte(i)
		}
	}
	b.Release()
	if n := a.Stats().ActiveRequests.Current; n != 0 {
		t.Errorf("%d blocks are still live", n)
	}
}
