package sim

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

func TestDefaultsAreAnH200(t *testing.T) {
	d, err := driver.Open("sim")
	if err != nil {
		t.Fatal(err)
	}
	want := driver.Info{
		Driver: "sim", Name: "simulated NVIDIA H200", TotalMemory: 150_109_880_320, Alignment: 512, Granularity: 2 << 20,
	}
	if got := d.Info(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	p, err := d.Alloc(1)
	if err != nil || p != 0x7f0000000000 {
		t.Errorf("the first address is %#x, %v", p, err)
	}
}

func TestAddressesAreReusedFirstFit(t *testing.T) {
	b := newBench(t, Options{Total: 10 << 20}, 1)
	alloc := func(size int64, want driver.Pointer) {
		t.Helper()
		p, err := b.Alloc(size)
		b.ok(err)
		if p != want {
			t.Errorf("Alloc(%d) is at +%#x, want +%#x", size, int64(p-b.p), int64(want-b.p))
		}
	}
	alloc(1, b.p+1<<20)
	alloc(513, b.p+1<<20+512)
	alloc(100, b.p+1<<20+1536)
	alloc(2<<20, b.p+2<<20) // on a granule
	alloc(512, b.p+1<<20+2048)
	b.ok(b.Free(b.p + 1<<20 + 512))
	alloc(1025, b.p+1<<20+2560)
	alloc(600, b.p+1<<20+512)
	b.ok(b.Free(b.p))
	alloc(1<<20, b.p)
}

func TestExactBytesAreAccounted(t *testing.T) {
	b := newBench(t, Options{Total: 1<<20 + 1000}, 1)
	free, total, err := b.Available()
	b.ok(err)
	if free != 1000 || total != 1<<20+1000 {
		t.Errorf("available %d of %d", free, total)
	}
	if _, err := b.Alloc(1001); !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("Alloc of a byte too much: %v", err)
	}
	_, err = b.Alloc(1000)
	b.ok(err)
}

func TestBadAccessesAreNamed(t *testing.T) {
	b := newBench(t, Options{}, 1)
	vm, size := b.VirtualMemory(), b.Info().Granularity
	r, err := vm.Reserve(3 * size)
	b.ok(err)
	page, err := vm.Create(size)
	b.ok(err)
	b.ok(vm.Map(r, page))
	gone, err := b.Alloc(4096)
	b.ok(err)
	b.ok(b.Free(gone))
	released, err := vm.Reserve(size)
	b.ok(err)
	b.ok(vm.Release(released, size))
	b.ok(vm.Map(r+driver.Pointer(2*size), page))

	for _, c := range []struct {
		name string
		p    driver.Pointer
		n    int64
		want AccessKind
	}{
		{"freed", gone, 1, UseAfterFree},
		{"the middle of what was freed", gone + 4000, 200, UseAfterFree},
		{"released", released, 1, UseAfterFree},
		{"one byte past the end", b.p + 1<<20 - 1, 2, OutOfBounds},
		{"nearly all addresses", b.p, 1<<63 - 1, OutOfBounds},
		{"past the reservation", r + driver.Pointer(3*size) - 1, 2, OutOfBounds},
		{"reserved", r + driver.Pointer(size), 1, NotMapped},
		{"from mapped into reserved", r, size + 1, NotMapped},
		{"nowhere", b.p - 1, 1, NotAllocated},
		{"null", 0, 1, NotAllocated},
	} {
		reports := len(b.Reports())
		err := b.s[0].Fill(c.p, 1, c.n)
		access, e := (*AccessError)(nil), (*driver.Error)(nil)
		if !errors.As(err, &access) || access.Kind != c.want || !errors.Is(err, driver.ErrInvalid) ||
			!errors.As(err, &e) || e.Call != "Stream.Fill" {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if len(b.Reports()) != reports+1 {
			t.Errorf("%s: no report", c.name)
		}
	}
	err = b.Free(gone)
	want := "driver: Free: invalid argument (0x7f0000100000 is not what Alloc returned: " +
		"[0x7f0000100000, +4096) was given back by call 6)"
	if err == nil || err.Error() != want {
		t.Errorf("double free: %v\nwant %s", err, want)
	}
}

func TestFreshMemoryDiffers(t *testing.T) {
	b := newBench(t, Options{Total: 1 << 22}, 1)
	read := func(p driver.Pointer) (got [32]byte) {
		t.Helper()
		b.ok(b.s[0].CopyOut(got[:], p))
		return got
	}
	p, err := b.Alloc(4096)
	b.ok(err)
	first := read(p)
	if read(b.p) == first || read(p+64) == first {
		t.Error("fresh memory reads alike in two places")
	}
	if read(p) != first {
		t.Error("fresh memory changes when it is read")
	}
	b.ok(b.s[0].Copy(b.p, p, 4096))
	if read(b.p) != first {
		t.Error("a copy of fresh memory reads differently")
	}
	b.ok(b.Free(p))
	again, err := b.Alloc(4096)
	b.ok(err)
	if again != p {
		t.Fatalf("%#x was not reused but %#x", p, again)
	}
	if read(again) == first {
		t.Error("memory that was freed and allocated again reads as before")
	}
}

// TestContentsAgreeWithBytes does random writes and copies on sparse contents and on plain bytes.
func TestContentsAgreeWithBytes(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const objects = 3
		var sparse [objects]*contents
		var plain [objects][]byte
		for i := range sparse {
			size := 2000 + rng.IntN(10_000)
			sparse[i] = &contents{seed: seed<<8 + uint64(i), size: int64(size)}
			plain[i] = make([]byte, size)
			for k := range plain[i] {
				plain[i][k] = noise(sparse[i].seed, uint64(k))
			}
		}
		for step := range 400 {
			i, j := rng.IntN(objects), rng.IntN(objects)
			n := 1 + rng.IntN(60)
			if rng.IntN(2) == 0 {
				n = 1 + rng.IntN(len(plain[i])/2)
			}
			off := rng.IntN(len(plain[i]) - n)
			switch rng.IntN(4) {
			case 0:
				sparse[i].fill(uint64(off), uint64(n), byte(step))
				repeat(plain[i][off:][:n], byte(step))
			case 1, 2:
				data := make([]byte, n)
				for k := range data {
					data[k] = byte(rng.Uint32())
				}
				if rng.IntN(4) == 0 {
					repeat(data, byte(5*rng.IntN(2))) // 0 is also the fill of extents that are none
				}
				sparse[i].store(uint64(off), data)
				copy(plain[i][off:], data)
				repeat(data, 0xee) // the caller's own again
			case 3:
				if n >= len(plain[j]) {
					continue
				}
				from := rng.IntN(len(plain[j]) - n)
				if i == j && from < off+n && off < from+n {
					continue
				}
				sparse[i].copyFrom(uint64(off), sparse[j], uint64(from), uint64(n))
				copy(plain[i][off:][:n], plain[j][from:])
			}
			got := make([]byte, len(plain[i]))
			sparse[i].load(got, 0)
			if !bytes.Equal(got, plain[i]) {
				t.Fatalf("seed %d, step %d: object %d differs", seed, step, i)
			}
		}
		for i := range sparse { // none changed when another was written
			got := make([]byte, len(plain[i]))
			sparse[i].load(got, 0)
			if !bytes.Equal(got, plain[i]) {
				t.Fatalf("seed %d: object %d differs at the end", seed, i)
			}
		}
	}
}

// A copy may cross pages that begin at other places on its two sides.
func TestCopyAcrossPages(t *testing.T) {
	b := newBench(t, Options{}, 1)
	vm, size := b.VirtualMemory(), b.Info().Granularity
	mapped := func(granules ...int64) driver.Pointer {
		p, err := vm.Reserve(4 * size)
		b.ok(err)
		var pages []driver.Page
		for _, n := range granules {
			page, err := vm.Create(n * size)
			b.ok(err)
			pages = append(pages, page)
		}
		b.ok(vm.Map(p, pages...))
		return p
	}
	data := make([]byte, 4*size-2)
	for i := range data {
		data[i] = byte(i % 251)
	}
	for name, to := range map[string]driver.Pointer{
		"other pages": mapped(2, 1, 1), "one page": mapped(4), "equal pages": mapped(1, 2, 1),
	} {
		from, got := mapped(1, 2, 1), make([]byte, len(data))
		b.ok(b.s[0].CopyIn(from+1, data))
		b.ok(b.s[0].Copy(to+2, from+1, int64(len(data))))
		b.ok(b.s[0].CopyOut(got, to+2))
		if !bytes.Equal(got, data) {
			t.Errorf("to %s: other bytes", name)
		}
	}
}

// TestSparse works on a hundred times the memory of any test machine.
func TestSparse(t *testing.T) {
	b := newBench(t, Options{Total: 1 << 45}, 1)
	p, err := b.Alloc(1 << 44)
	b.ok(err)
	q, err := b.Alloc(1 << 44)
	if !errors.Is(err, driver.ErrNoMemory) {
		t.Fatal(q, err)
	}
	b.ok(b.s[0].Fill(p, 7, 1<<43))
	b.ok(b.s[0].CopyIn(p+1<<42, []byte("in the middle")))
	b.ok(b.s[0].Copy(p+1<<43, p, 1<<43))
	got := make([]byte, 15)
	b.ok(b.s[0].CopyOut(got, p+1<<43+1<<42-1))
	if string(got) != "\x07in the middle\x07" {
		t.Errorf("%q", got)
	}
}

func TestLeaks(t *testing.T) {
	b := newBench(t, Options{}, 3)
	vm, size := b.VirtualMemory(), b.Info().Granularity
	r, err := vm.Reserve(size)
	b.ok(err)
	page, err := vm.Create(size)
	b.ok(err)
	b.ok(b.s[1].Close())
	want := "allocations [{7f0000000000 100000}], reservations [{8f0000000000 200000}], pages [{1 2097152}], streams [2]"
	if got := b.Leaks(); got.String() != want || got.Empty() {
		t.Errorf("%v\nwant %s", got, want)
	}
	b.ok(vm.Map(r, page))
	b.ok(vm.Drop(page))
	if got := b.Leaks(); len(got.Pages) != 1 {
		t.Errorf("a page that is mapped is not among %v", got)
	}
	b.ok(b.Close())
	if got := b.Leaks(); len(got.Pages) != 1 || len(got.Allocations) != 1 {
		t.Errorf("after Close: %v", got)
	}

	b = newBench(t, Options{}, 2)
	b.ok(b.Free(b.p))
	b.ok(b.s[1].Close())
	if got := b.Leaks(); !got.Empty() || got.String() != "nothing" {
		t.Errorf("nothing is held, and yet %v", got)
	}
}

func TestStreamNumbersAreDense(t *testing.T) {
	b := newBench(t, Options{}, 4)
	b.ok(b.s[3].Close())
	b.ok(b.s[1].Close())
	b.ok(b.s[1].Close())
	for _, want := range []driver.StreamID{1, 3, 4} {
		s, err := b.NewStream(driver.StreamOptions{})
		b.ok(err)
		if s.ID() != want {
			t.Errorf("stream %d, want %d", s.ID(), want)
		}
	}
	b.ok(b.s[0].Sync(context.Background()))
}
