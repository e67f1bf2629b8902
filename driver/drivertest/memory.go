package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func testAlloc(t *testing.T, open openFunc) {
	d := open(t)
	align := uint64(d.Info().Alignment)
	var blocks []driver.Range
	for _, size := range []int64{1, 2, 3, 255, 256, 257, 511, 512, 513, 4095, 4096, 4097, 65536, 1<<20 - 1, 1 << 20} {
		p := Alloc(t, d, size)
		if p == 0 || uint64(p)%align != 0 {
			t.Errorf("Alloc(%d) is %#x: want a multiple of %d that is not 0", size, p, align)
		}
		blocks = append(blocks, driver.Range{Ptr: p, Size: size})
	}
	ascending := slices.SortedFunc(slices.Values(blocks), func(a, b driver.Range) int {
		if a.Ptr < b.Ptr {
			return -1
		}
		return 1
	})
	for i, b := range ascending[1:] {
		if a := ascending[i]; a.Ptr+driver.Pointer(a.Size) > b.Ptr {
			t.Errorf("blocks %#x+%d and %#x+%d overlap", a.Ptr, a.Size, b.Ptr, b.Size)
		}
	}

	// Every byte is there, and no block shows another's.
	s := d.DefaultStream()
	for i, b := range blocks {
		testkit.Must(t, s.Fill(b.Ptr, byte(i+1), b.Size))
	}
	for i, b := range blocks {
		wantBytes(t, s, b.Ptr, bytes.Repeat([]byte{byte(i + 1)}, int(b.Size)))
	}
	for _, i := range []int{3, 0, 14, 7, 1, 2, 13, 12, 4, 6, 5, 11, 10, 8, 9} {
		testkit.Must(t, d.Free(blocks[i].Ptr))
	}
}

func testAllocMisuse(t *testing.T, open openFunc) {
	d := open(t)
	s := d.DefaultStream()
	p := Alloc(t, d, 8192)
	want := Noise(1, 8192)
	testkit.Must(t, s.CopyIn(p, want))
	q := Alloc(t, d, 4096)
	testkit.Must(t, d.Free(q))

	WantErr(t, "Free of what was freed", d.Free(q), driver.ErrInvalid)
	WantErr(t, "Free inside a block", d.Free(p+4096), driver.ErrInvalid)
	WantErr(t, "Free of an odd address in a block", d.Free(p+1), driver.ErrInvalid)
	wantPanic(t, "Alloc(-1)", func() error { _, err := d.Alloc(-1); return err })
	wantRefused(t, "Alloc(0)", func() error { _, err := d.Alloc(0); return err })

	wantBytes(t, s, p, want)
	testkit.Must(t, d.Free(p))
	WantErr(t, "Free twice", d.Free(p), driver.ErrInvalid)
	p = Alloc(t, d, 8192)
	testkit.Must(t, d.Free(p))
}

func testExhaustion(t *testing.T, open openFunc) {
	d := open(t)
	s := d.DefaultStream()
	total := d.Info().TotalMemory
	keep := Alloc(t, d, 4096)
	want := Noise(2, 4096)
	testkit.Must(t, s.CopyIn(keep, want))

	_, err := d.Alloc(total)
	WantErr(t, "Alloc of the total with a block live", err, driver.ErrNoMemory)
	_, err = d.Alloc(total + 1)
	WantErr(t, "Alloc of more than the total", err, driver.ErrNoMemory)
	_, err = d.Alloc(1 << 62)
	WantErr(t, "Alloc of 4 EiB", err, driver.ErrNoMemory)

	for range 2 { // what was freed can be had again
		var got []driver.Pointer
		for {
			p, err := d.Alloc(total / 8)
			if err != nil {
				WantErr(t, "Alloc on a full device", err, driver.ErrNoMemory)
				break
			}
			if got = append(got, p); len(got) > 8 {
				t.Fatalf("%d blocks of an eighth of the total", len(got))
			}
		}
		if len(got) == 0 {
			t.Fatal("no room for an eighth of the total")
		}
		wantBytes(t, s, keep, want)
		for _, p := range got {
			testkit.Must(t, d.Free(p))
		}
	}
	p := Alloc(t, d, 4096)
	testkit.Must(t, s.Copy(p, keep, 4096))
	wantBytes(t, s, p, want)
	testkit.Must(t, d.Free(p))
	testkit.Must(t, d.Free(keep))
}

func testAvailable(t *testing.T, open openFunc) {
	d := open(t)
	size := d.Info().TotalMemory / 4 &^ (1<<20 - 1)
	expect := func(what string, least, most int64) {
		t.Helper()
		free, total, err := d.Available()
		testkit.Must(t, err)
		if free < least || free > most || total != d.Info().TotalMemory {
			t.Errorf("%s: %d of %d bytes available, want %d to %d of %d",
				what, free, total, least, most, d.Info().TotalMemory)
		}
	}
	before, total, err := d.Available()
	testkit.Must(t, err)
	p := Alloc(t, d, size)
	expect("after Alloc", 0, before-size)
	low, _, err := d.Available()
	testkit.Must(t, err)
	testkit.Must(t, d.Free(p))
	expect("after Free", low+size, total)

	vm := d.VirtualMemory()
	if vm == nil {
		return
	}
	size -= size % d.Info().Granularity
	if size == 0 {
		t.Fatalf("a quarter of %d bytes is less than a granule", total)
	}
	before, _, err = d.Available()
	testkit.Must(t, err)
	page, err := vm.Create(size)
	testkit.Must(t, err)
	expect("after Create", 0, before-size)
	addr, err := vm.Reserve(2 * size)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(addr, page))
	testkit.Must(t, vm.Map(addr+driver.Pointer(size), page))
	low, _, err = d.Available()
	testkit.Must(t, err)
	testkit.Must(t, vm.Drop(page))
	expect("after Drop of a page that is mapped twice", 0, before-size)
	testkit.Must(t, vm.Unmap(addr, size))
	expect("after Drop of a page that is mapped once more", 0, before-size)
	testkit.Must(t, vm.Unmap(addr+driver.Pointer(size), size))
	expect("after the last Unmap of a page that was dropped", low+size, total)
	testkit.Must(t, vm.Release(addr, 2*size))
}

func testCopyInCopyOut(t *testing.T, open openFunc) {
	d := open(t)
	s := d.DefaultStream()
	const size = 1 << 18
	p := Alloc(t, d, size)
	model := Noise(3, size)
	testkit.Must(t, s.CopyIn(p, model))
	for i, r := range oddRanges(size) {
		src := Noise(uint64(100+i), int(r.n))
		testkit.Must(t, s.CopyIn(p+driver.Pointer(r.at), src))
		copy(model[r.at:], src)
		clear(src) // it may be reused
		wantBytes(t, s, p+driver.Pointer(r.at), model[r.at:r.at+r.n])
	}
	wantBytes(t, s, p, model)
	testkit.Must(t, d.Free(p))
}

func testCopy(t *testing.T, open openFunc) {
	d := open(t)
	s := d.DefaultStream()
	const size = 1 << 18
	a := Alloc(t, d, size)
	b := Alloc(t, d, size)
	from, to := Noise(4, size), Noise(5, size)
	testkit.Must(t, s.CopyIn(a, from))
	testkit.Must(t, s.CopyIn(b, to))
	ranges := oddRanges(size)
	for i, r := range ranges {
		at := ranges[len(ranges)-1-i].at
		n := min(r.n, size-at)
		testkit.Must(t, s.Copy(b+driver.Pointer(at), a+driver.Pointer(r.at), n))
		copy(to[at:at+n], from[r.at:])
	}
	testkit.Must(t, s.Copy(b+4096, b, 4096)) // within a block, without overlap
	copy(to[4096:8192], to[:4096])
	wantBytes(t, s, b, to)
	wantBytes(t, s, a, from)
	testkit.Must(t, d.Free(a))
	testkit.Must(t, d.Free(b))
}

// overlaps lists distances between ranges of n bytes that overlap.
func overlaps(n int64) []int64 { return []int64{0, 1, -1, 8, -8, n / 2, -n / 2, n - 1, 1 - n} }

// testCopyOverlap: a copy between ranges that overlap is refused by an error, and changes nothing. Ranges side by side
// do not overlap, nor do those of no bytes.
func testCopyOverlap(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	const size, n = 1 << 16, 1 << 12
	p := Alloc(t, d, size)
	model := Noise(7, size)
	testkit.Must(t, s.CopyIn(p, model))
	middle := p + size/2
	refused := func() {
		for _, by := range overlaps(n) {
			what := fmt.Sprintf("Copy of %d bytes by %d", n, by)
			WantErr(t, what, s.Copy(middle+driver.Pointer(by), middle, n), driver.ErrInvalid)
		}
	}
	refused()
	wantBytes(t, s, p, model)
	apart := func() {
		testkit.Must(t, s.Copy(middle, middle, 0))
		testkit.Must(t, s.Copy(middle+n, middle, n))
		testkit.Must(t, s.Copy(middle-n, middle, n))
	}
	apart()
	copy(model[size/2+n:], model[size/2:size/2+n])
	copy(model[size/2-n:], model[size/2:size/2+n])
	wantBytes(t, s, p, model)

	if graphs := d.Graphs(); graphs != nil { // a capture goes on without what was refused
		testkit.Must(t, graphs.Begin(s))
		refused()
		apart()
		testkit.Must(t, s.Fill(middle, 5, n))
		g, err := graphs.End(s)
		testkit.Must(t, err)
		testkit.Must(t, g.Launch(s))
		copy(model[size/2:], bytes.Repeat([]byte{5}, n))
		wantBytes(t, s, p, model)
		testkit.Must(t, g.Close())
	}
	testkit.Must(t, s.Close())
	testkit.Must(t, d.Free(p))
}

func testFill(t *testing.T, open openFunc) {
	d := open(t)
	s := d.DefaultStream()
	const size = 1 << 18
	p := Alloc(t, d, size)
	model := Noise(6, size)
	testkit.Must(t, s.CopyIn(p, model))
	for i, r := range oddRanges(size) {
		pattern := byte(255 - 7*i)
		testkit.Must(t, s.Fill(p+driver.Pointer(r.at), pattern, r.n))
		for j := r.at; j < r.at+r.n; j++ {
			model[j] = pattern
		}
	}
	wantBytes(t, s, p, model)
	testkit.Must(t, d.Free(p))
}

// wantBytes waits for the work queued on s and fails the test unless the bytes at p are want.
func wantBytes(t testing.TB, s driver.Stream, p driver.Pointer, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	testkit.Must(t, s.CopyOut(got, p))
	if bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%d bytes at %#x: byte %d is %#02x, want %#02x", len(want), p, i, got[i], want[i])
		}
	}
}

type oddRange struct{ at, n int64 }

// oddRanges lists ranges within size bytes whose ends have all kinds of alignment.
func oddRanges(size int64) []oddRange {
	var ranges []oddRange
	for _, n := range []int64{1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 511, 513, 4095, 4097, 65535, 65537} {
		for _, at := range []int64{0, 1, 5, 8, 511, 4093, size/2 - 1, size - n} {
			if at+n <= size {
				ranges = append(ranges, oddRange{at, n})
			}
		}
	}
	return append(ranges, oddRange{1, size - 2}, oddRange{0, size})
}

// Noise returns n bytes that depend on the seed and on their place.
func Noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 32)
	}
	return b
}

// syncAll waits for the work on all the streams.
func syncAll(t testing.TB, streams ...driver.Stream) {
	t.Helper()
	var errs []error
	for _, s := range streams {
		errs = append(errs, s.Sync(context.Background()))
	}
	testkit.Must(t, errors.Join(errs...))
}
