package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
)

// A fake is a device that runs no kernel code. It implements a few kernels in Go, on its own memory.
type fake struct {
	driver.Device
	memory   []byte // at address base
	loaded   []string
	launched []string
	calls    int
	host     [][]byte
	err      error
}

const base = 1 << 20

func (f *fake) Info() driver.Info {
	return driver.Info{Name: "fake", Compute: 90, Multiprocessors: 132}
}
func (f *fake) Kernels() driver.Kernels       { return fakeKernels{f} }
func (f *fake) Pinned() driver.Pinned         { return fakePinned{f: f} }
func (f *fake) DefaultStream() driver.Stream  { return fakeStream{f: f} }
func (f *fake) bytes(p driver.Pointer) []byte { return f.memory[p-base:] }

type fakePinned struct {
	driver.Pinned
	f *fake
}

func (p fakePinned) AllocHost(size int64) ([]byte, error) {
	words := make([]uint64, (size+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
	for i := range b {
		b[i] = 0xa5 // undefined contents
	}
	p.f.host = append(p.f.host, b)
	return b, nil
}

func (p fakePinned) FreeHost(b []byte) error {
	p.f.host = slices.DeleteFunc(p.f.host, func(h []byte) bool { return &h[0] == &b[0] })
	return nil
}

type fakeStream struct {
	driver.Stream
	f *fake
}

func (s fakeStream) Copy(dst, src driver.Pointer, n int64) error {
	s.f.launched = append(s.f.launched, "copy")
	copy(s.f.bytes(dst)[:n], s.f.bytes(src))
	return nil
}

type fakeModule struct {
	driver.Module
	f *fake
}

type fakeFunction struct{ name string }

func (f fakeFunction) Name() string          { return f.name }
func (f fakeFunction) Limits() driver.Limits { return driver.Limits{} }

func (m fakeModule) Function(name string) (driver.Function, error) { return fakeFunction{name}, nil }

func (m fakeModule) Close() error { m.f.loaded = m.f.loaded[:len(m.f.loaded)-1]; return nil }

type fakeKernels struct{ f *fake }

func (k fakeKernels) Load(code []byte) (driver.Module, error) {
	if k.f.err != nil {
		return nil, k.f.err
	}
	k.f.loaded = append(k.f.loaded, string(code[:80]))
	return fakeModule{f: k.f}, nil
}

func (k fakeKernels) Launch(_ driver.Stream, l driver.Kernel) error {
	if l.Call != nil {
		k.f.calls++
		return nil
	}
	name := l.Code.Name()
	k.f.launched = append(k.f.launched, name)
	if l.Grid[0] == 0 || l.Block[0] != threads || len(l.Args) != 1 {
		return fmt.Errorf("%s: grid %v, block %v, %d arguments", name, l.Grid, l.Block, len(l.Args))
	}
	if strings.HasPrefix(name, "transpose") {
		return k.f.transpose(name, int(l.Grid[0]), (*transposition)(unsafe.Pointer(&l.Args[0].Bytes()[0])))
	}
	return k.f.elementwise(name, int(l.Grid[0]), (*operands)(unsafe.Pointer(&l.Args[0].Bytes()[0])))
}

func (w *walk[S]) locate(i int, strides []int32) (at int) {
	for axis := range int(w.rank) - 1 {
		q := int(quotient(uint32(i), w.by[axis]))
		at += (i - q*int(w.shape[axis])) * int(strides[axis])
		i = q
	}
	return at + i*int(strides[w.rank-1])
}

var fakeSizes = map[string]int{"u8": 1, "u16": 2, "u32": 4, "u64": 8, "c128": 16}

// elementwise is move, fill and where.
func (f *fake) elementwise(name string, blocks int, p *operands) error {
	size := fakeSizes[name[strings.LastIndex(name, "_")+1:]]
	sizes := []int{size, size, size, size}
	inputs, depth := 1, 4
	switch {
	case strings.HasPrefix(name, "fill"):
		inputs = 0
	case strings.HasPrefix(name, "where"):
		inputs, depth, sizes[1] = 3, 2, 1
	}
	width, each := 16/size, depth
	if strings.Contains(name, "walk") {
		width, each = 1, walkElements
	} else if p.rest > 0 {
		blocks--
	}
	n := int(p.walk.n)
	if n > blocks*threads*each || n <= (blocks-1)*threads*each {
		return fmt.Errorf("%s: %d blocks for %d", name, blocks, n)
	}
	element := func(i, v int) {
		var in [3][]byte
		for k := range inputs + 1 {
			at := p.walk.locate(i, p.walk.strides[k][:])
			if p.splats&(1<<k) == 0 {
				at += v
			}
			b := f.bytes(p.at[k])
			if at < 0 { // addresses go up from the first element, or down
				b = f.bytes(p.at[k] - driver.Pointer(-at*sizes[k]))
				at = 0
			}
			if k > 0 {
				in[k-1] = b[at*sizes[k]:][:sizes[k]]
				continue
			}
			defer func() {
				value := unsafe.Slice((*byte)(unsafe.Pointer(&p.value)), 16)
				switch {
				case inputs == 1:
					value = in[0]
				case inputs == 3 && in[0][0] != 0:
					value = in[1]
				case inputs == 3:
					value = in[2]
				}
				copy(b[at*size:][:size], value)
			}()
		}
	}
	for i := range n {
		for v := range width {
			if v == 0 && width > 1 {
				for k := range inputs + 1 {
					at := p.at[k] + driver.Pointer(p.walk.locate(i, p.walk.strides[k][:])*sizes[k])
					if p.splats&(1<<k) == 0 && at%driver.Pointer(width*sizes[k]) != 0 {
						return fmt.Errorf("%s: operand %d is not aligned", name, k)
					}
				}
			}
			element(i, v)
		}
	}
	for v := range int(p.rest) {
		element(n, v)
	}
	return nil
}

func (f *fake) transpose(name string, blocks int, p *transposition) error {
	size := fakeSizes[name[strings.LastIndex(name, "_")+1:]]
	if strings.Contains(name, "words") && int(p.dst|p.src)%4+(int(p.rows|p.columns)|int(p.dstStep|p.srcStep))%(4/size) != 0 {
		return fmt.Errorf("%s: %+v are no words", name, p)
	}
	if int(p.tilesAcross*p.tilesDown*p.walk.n) != blocks {
		return fmt.Errorf("%s: %d blocks for %+v", name, blocks, p)
	}
	for i := range int(p.walk.n) {
		for row := range int(p.rows) {
			for column := range int(p.columns) {
				to := p.walk.locate(i, p.walk.strides[0][:]) + row*int(p.dstStep) + column
				from := p.walk.locate(i, p.walk.strides[1][:]) + column*int(p.srcStep) + row
				copy(f.bytes(p.dst + driver.Pointer(to*size))[:size], f.bytes(p.src+driver.Pointer(from*size)))
			}
		}
	}
	return nil
}

func newFake(t *testing.T, o Options) (*fake, *Backend, backend.Queue) {
	t.Helper()
	f := &fake{memory: make([]byte, 5<<17)}
	b, err := New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return f, b, backend.Queue{Stream: f.DefaultStream(), Scratch: &bump{next: base + 4<<17}}
}

// A bump allocator never reuses memory. It counts frees.
type bump struct {
	next driver.Pointer
	live int
}

func (b *bump) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	b.live++
	p := b.next
	b.next += driver.Pointer(size+511) &^ 511
	return mem.Block{Ptr: p, Size: size}, nil
}

func (b *bump) Free(mem.Block, ...driver.Stream) { b.live-- }

// Elements are moved, set and selected as the layouts require, by every code path.
func TestElementsGoWhereTheyShould(t *testing.T) {
	rng := newRand(t)
	ways := map[string]int{
		"copy": 0, "move": 0, "move_walk": 0, "fill": 0, "fill_walk": 0, "where": 0, "where_walk": 0, "transpose": 0, "transpose_words": 0,
	}
	missing := func() bool {
		for _, taken := range ways {
			if taken == 0 {
				return true
			}
		}
		return false
	}
	for i := 0; i < 400 || i < 20_000 && missing(); i++ {
		f, b, q := newFake(t, Options{})
		for i := 0; i < len(f.memory); i += 8 {
			binary.LittleEndian.PutUint64(f.memory[i:], rng.Uint64())
		}
		d := []dtype.DType{dtype.Uint8, dtype.Float16, dtype.Float32, dtype.Int64, dtype.Complex128}[rng.IntN(5)]
		arrays := randomLayout(rng, 4)
		for count(arrays[0]) > 400 {
			arrays = randomLayout(rng, 4)
		}
		if rng.IntN(4) == 0 { // large enough for tiles
			n, m := 8*(1+rng.IntN(4)), 4*(2+rng.IntN(6))+rng.IntN(2)
			for _, a := range arrays {
				a.Shape, a.Strides = []int{2, m, n}, []int{n * m, n, 1}
				if rng.IntN(2) == 0 {
					a.Strides = []int{n * m, 1, m}
				}
			}
		} else if rng.IntN(3) == 0 { // in one piece
			n := 1 + rng.IntN(300)
			for k, a := range arrays {
				a.Shape, a.Strides = []int{n}, []int{1}
				if k > 0 && rng.IntN(3) == 0 {
					a.Strides = []int{0}
				}
			}
		}
		for k, a := range arrays {
			a.DType, a.Ptr, a.Offset = d, driver.Pointer(base+k<<17), 3200+16*rng.IntN(2)
			if rng.IntN(4) == 0 {
				a.Offset += rng.IntN(4)
			}
		}
		arrays[1].DType = dtype.Bool
		dst, cond, x, y := arrays[0], arrays[1], arrays[2], arrays[3]
		size := d.Size()
		want := bytes.Clone(f.memory)
		var err error
		switch op := rng.IntN(3); op {
		case 0:
			for at := range places([]*backend.Array{dst, x}) {
				copy(want[int(dst.Ptr-base)+(dst.Offset+at[0])*size:][:size], f.memory[int(x.Ptr-base)+(x.Offset+at[1])*size:])
			}
			err = b.Copy(q, *dst, *x)
		case 1:
			for at := range places([]*backend.Array{dst}) {
				dtype.ScalarOf(-3).Put(want[int(dst.Ptr-base)+(dst.Offset+at[0])*size:], d)
			}
			err = b.Fill(q, *dst, dtype.ScalarOf(-3))
		case 2:
			for at := range places([]*backend.Array{dst, cond, x, y}) {
				from := f.memory[int(y.Ptr-base)+(y.Offset+at[3])*size:]
				if f.memory[int(cond.Ptr-base)+cond.Offset+at[1]] != 0 {
					from = f.memory[int(x.Ptr-base)+(x.Offset+at[2])*size:]
				}
				copy(want[int(dst.Ptr-base)+(dst.Offset+at[0])*size:][:size], from)
			}
			if err = b.Where(q, *dst, *cond, *x, *y); d.IsComplex() && errors.Is(err, driver.ErrUnsupported) {
				continue
			}
		}
		if err != nil || !bytes.Equal(f.memory, want) {
			t.Fatalf("%v of %v: %v, memory right: %v\ndst %+v\nx %+v", f.launched, d, err, bytes.Equal(f.memory, want), dst, x)
		}
		for _, name := range f.launched {
			ways[name[:max(strings.LastIndex(name, "_"), 4)]]++
		}
	}
	if missing() {
		t.Errorf("some ways were never taken: %v", ways)
	}
}

func count(a *backend.Array) int {
	n := 1
	for _, length := range a.Shape {
		n *= length
	}
	return n
}

func TestModulesAreLoadedOnce(t *testing.T) {
	f, b, q := newFake(t, Options{})
	if len(f.loaded) != 0 {
		t.Errorf("New loaded %d modules", len(f.loaded))
	}
	x := backend.Array{Ptr: base, DType: dtype.Uint16, Shape: []int{7}, Strides: []int{2}}
	for range 3 {
		if err := b.Fill(q, x, dtype.ScalarOf(1)); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.loaded) != 1 {
		t.Errorf("%d modules were loaded, want 1", len(f.loaded))
	}
	if err := b.Close(); err != nil || len(f.loaded) != 0 || len(f.host) != 0 {
		t.Errorf("after Close %d modules and %d blocks of host memory are left, %v", len(f.loaded), len(f.host), err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

// A module that could not be loaded is tried again.
func TestLoadThatFails(t *testing.T) {
	f, b, q := newFake(t, Options{})
	x := backend.Array{Ptr: base, DType: dtype.Uint16, Shape: []int{7}, Strides: []int{2}}
	f.err = errors.New("no")
	if err := b.Fill(q, x, dtype.ScalarOf(1)); !errors.Is(err, f.err) {
		t.Errorf("%v, want %v", err, f.err)
	}
	f.err = nil
	if err := b.Fill(q, x, dtype.ScalarOf(1)); err != nil {
		t.Error(err)
	}
}

func TestNewRefusesOtherDevices(t *testing.T) {
	for name, dev := range map[string]driver.Device{"older": &older{}, "without kernels": &plain{}} {
		if _, err := New(dev, Options{}); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type older struct{ fake }

func (o *older) Info() driver.Info { return driver.Info{Name: "old", Compute: 61} }

type plain struct{ fake }

func (*plain) Kernels() driver.Kernels { return nil }

func TestFailedTellsOnce(t *testing.T) {
	_, b, _ := newFake(t, Options{})
	if err := b.Failed(); err != nil {
		t.Fatalf("%v before anything failed", err)
	}
	*b.fault.cell = faultCell{claimed: 1, op: faultIndexSelect, index: -4, size: 9}
	var got *backend.IndexError
	if err := b.Failed(); !errors.As(err, &got) || *got != (backend.IndexError{Op: "index_select", Index: -4, Size: 9}) {
		t.Errorf("got %v", err)
	}
	if err := b.Failed(); err != nil || b.fault.cell.claimed != 0 {
		t.Errorf("asked again: %v, and the cell is %+v", err, *b.fault.cell)
	}
}

// Matrices that cuBLAS reads as they lie, and those that it does not.
func TestLeading(t *testing.T) {
	for _, c := range []struct {
		row, column, rows, columns int
		distance                   int
		byColumns, ok              bool
	}{
		{8, 1, 5, 8, 8, false, true},
		{11, 1, 5, 8, 11, false, true},
		{1, 5, 5, 8, 5, true, true},
		{1, 9, 5, 8, 9, true, true},
		{16, 2, 5, 8, 0, false, false},
		{0, 1, 5, 8, 0, false, false},
		{7, 1, 5, 8, 0, false, false},
		{-8, 1, 5, 8, 0, false, false},
		{0, 1, 1, 8, 8, false, true},
		{99, 3, 1, 8, 3, true, true},
		{3, 99, 5, 1, 3, false, true},
		{1, 0, 5, 1, 1, false, true},
		{0, 0, 1, 1, 1, false, true},
		{1 << 40, 1, 2, 2, 0, false, false},
	} {
		distance, byColumns, ok := matrix{0, c.row, c.column}.leading(c.rows, c.columns)
		if ok != c.ok || ok && (distance != c.distance || byColumns != c.byColumns) {
			t.Errorf("%+v: got %d, %v, %v", c, distance, byColumns, ok)
		}
	}
}

// A batch of rows with one matrix is one product.
func TestBatchesAreFolded(t *testing.T) {
	for _, c := range []struct {
		a, b, dst []int // strides of [6, 4, 5, 7], [6, 4, 7, 3], [6, 4, 5, 3]
		m, batch  int
	}{
		{[]int{140, 35, 7, 1}, []int{0, 0, 3, 1}, []int{60, 15, 3, 1}, 120, 1},
		{[]int{140, 35, 7, 1}, []int{84, 21, 3, 1}, []int{60, 15, 3, 1}, 5, 24},
		{[]int{140, 35, 7, 1}, []int{21, 0, 3, 1}, []int{60, 15, 3, 1}, 20, 6},
		{[]int{35, 210, 7, 1}, []int{0, 0, 3, 1}, []int{60, 15, 3, 1}, 5, 24},
		{[]int{0, 0, 7, 1}, []int{0, 0, 3, 1}, []int{60, 15, 3, 1}, 5, 24},
	} {
		p := newMatmul(
			&backend.Array{DType: dtype.Float32, Shape: []int{6, 4, 5, 3}, Strides: c.dst},
			&backend.Array{DType: dtype.Float32, Shape: []int{6, 4, 5, 7}, Strides: c.a},
			&backend.Array{DType: dtype.Float32, Shape: []int{6, 4, 7, 3}, Strides: c.b})
		if p.m != c.m || p.batch.elements() != c.batch || p.n != 3 || p.k != 7 {
			t.Errorf("%+v: %d rows, a batch of %d", c, p.m, p.batch.elements())
		}
	}
}
