package safetensors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// bytesOf returns n bytes, each computed from its position.
func bytesOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// A tensor of many pieces, a small one and an empty one; the header is made longer by some spaces.
func manyPieces(t testing.TB, dir string, spaces int) (path string, data []byte) {
	t.Helper()
	n := 3*transfer.Piece + 4*1000
	data = bytesOf(n + 8)
	header := fmt.Sprintf(`{"big":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]},"small":{"dtype":"U8","shape":[2,4],"data_offsets":[%d,%d]},"none":{"dtype":"F64","shape":[0,7],"data_offsets":[%d,%d]}}`,
		n/4, n, n, n+8, n+8, n+8)
	header += strings.Repeat(" ", -len(header)&7+spaces)
	return put(t, dir, "x.safetensors", raw(header, data)), data
}

// On every device, at every alignment, with and without a copy, all bytes arrive.
func TestLoadOfManyPieces(t *testing.T) {
	for where, p := range tensortest.HostAndSim(t) {
		for _, c := range []struct {
			spaces int
			copied bool
			shared bool // the large tensor looks into the file
		}{{0, false, where == "host"}, {0, true, false}, {1, false, false}} {
			path, data := manyPieces(t, t.TempDir(), c.spaces)
			f, err := Open(path, Options{Copy: c.copied})
			testkit.Must(t, err)
			big, err := f.Load(p, "big")
			testkit.Must(t, err)
			small, err := f.Load(p, "small")
			testkit.Must(t, err)
			none, err := f.Load(p, "none")
			testkit.Must(t, err)
			testkit.Must(t, f.Close()) // which takes nothing from what is loaded
			if got := append(tensortest.Content(t, big), tensortest.Content(t, small)...); !bytes.Equal(got, data) {
				t.Errorf("%s, %+v: other bytes", where, c)
			}
			if !slices.Equal(none.Shape(), []int{0, 7}) || !slices.Equal(small.Shape(), []int{2, 4}) {
				t.Errorf("%s: %v, %v", where, none.Brief(), small.Brief())
			}
			if shared := big.Storage().Pointer() == 0; shared != c.shared {
				t.Errorf("%s, %+v: shared is %t", where, c, shared)
			}
			for _, x := range []*tensor.Tensor{big, small, none} {
				x.Release()
			}
			if _, err := f.Load(p, "big"); !errors.Is(err, ErrClosed) {
				t.Errorf("load from a closed file: %v", err)
			}
			testkit.Must(t, f.Close())
		}
	}
}

// The mapping is as the file was for its tensors, whatever they write, and lives as long as the last of them.
func TestTensorsLookIntoThePrivateMapping(t *testing.T) {
	p := tensortest.Host(t)
	path, data := manyPieces(t, t.TempDir(), 0)
	f, err := Open(path, Options{})
	testkit.Must(t, err)
	memory := f.memory
	a, err := f.Load(p, "small")
	testkit.Must(t, err)
	b, err := f.LoadSlice(p, "big", 0, 2, 4)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
	testkit.Must(t, a.Fill(nil, 7))
	if got := tensortest.Content(t, a); !bytes.Equal(got, bytes.Repeat([]byte{7}, 8)) {
		t.Errorf("after a fill: %v", got)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.HasSuffix(got, data) {
		t.Error("the file has changed", err)
	}
	a.Release()
	if memory.Bytes() == nil {
		t.Fatal("the mapping is gone before its last tensor")
	}
	if got := tensortest.Content(t, b); !bytes.Equal(got, data[8:24]) {
		t.Errorf("%v", got)
	}
	b.Release()
	if memory.Bytes() != nil {
		t.Error("the mapping outlives its last tensor")
	}
}

// A file that is truncated while it is open is an error, which names the tensor.
func TestTruncatedFilesAreErrors(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("a mapped file cannot be truncated there")
		return
	}
	for where, p := range tensortest.HostAndSim(t) {
		for _, size := range []int64{1000, 2*transfer.Piece + 5} {
			path, _ := manyPieces(t, t.TempDir(), 1)
			c, err := OpenCheckpoint(path, Options{Copy: true})
			testkit.Must(t, err)
			_, err = c.LoadAll(t.Context(), p, func(done, total int64) {
				if done == 0 {
					testkit.Must(t, os.Truncate(path, size))
				}
			})
			if err == nil || !strings.Contains(err.Error(), `tensor "big": `) || !strings.Contains(err.Error(), "truncated") {
				t.Errorf("%s, %d bytes left: %v", where, size, err)
			}
			_, err = c.LoadSlice(p, "small", 1, 1, 2)
			if err == nil || !strings.Contains(err.Error(), "truncated") {
				t.Errorf("%s, a slice of near runs: %v", where, err)
			}
			testkit.Must(t, c.Close())
		}
	}
}

func TestLoadAll(t *testing.T) {
	for where, p := range tensortest.HostAndSim(t) {
		for _, copied := range []bool{false, true} {
			path, data := manyPieces(t, t.TempDir(), 0)
			c, err := OpenCheckpoint(path, Options{Copy: copied})
			testkit.Must(t, err)
			var told []int64
			s := p.Scope()
			all, err := c.LoadAll(t.Context(), s.Place, func(done, total int64) {
				if total != int64(len(data)) {
					t.Errorf("%d of %d bytes, there are %d", done, total, len(data))
				}
				told = append(told, done)
			})
			testkit.Must(t, err)
			if got := append(tensortest.Content(t, all["big"]), tensortest.Content(t, all["small"])...); len(all) != 3 || !bytes.Equal(got, data) {
				t.Errorf("%s: other bytes", where)
			}
			if !slices.IsSorted(told) || told[len(told)-1] != int64(len(data)) || (copied || where == "sim") && (told[0] != 0 || len(told) < 5) {
				t.Errorf("%s: progress %v", where, told)
			}
			s.Close() // owns them all
			testkit.Must(t, c.Close())
		}
	}
}

// Large loads go through page-locked memory, whether they end well or not.
func TestLargeLoads(t *testing.T) {
	defer func(from int64) { lockFrom = from }(lockFrom)
	lockFrom = 1
	p := tensortest.Sim(t)
	path, data := manyPieces(t, t.TempDir(), 0)
	c, err := Open(path, Options{})
	testkit.Must(t, err)
	defer c.Close()
	s := p.Scope()
	all, err := c.LoadAll(t.Context(), s.Place, nil)
	testkit.Must(t, err)
	if got := append(tensortest.Content(t, all["big"]), tensortest.Content(t, all["small"])...); !bytes.Equal(got, data) {
		t.Error("other bytes")
	}
	s.Close()
	testkit.Must(t, os.Truncate(path, int64(len(data)/2)))
	if _, err := c.LoadAll(t.Context(), p, nil); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("of half a file: %v", err)
	}
}

// Where the device has too little page-locked memory, or none, large loads take other memory. None is left behind.
func TestLargeLoadsWithoutLockedMemory(t *testing.T) {
	defer func(from int64) { lockFrom = from }(lockFrom)
	lockFrom = 1
	p := tensortest.Sim(t)
	leaks := p.Device().(*sim.Device).Leaks
	before := leaks().String()
	path, data := manyPieces(t, t.TempDir(), 0)
	c, err := Open(path, Options{})
	testkit.Must(t, err)
	defer c.Close()
	refusing := fault.Wrap(p.Device())
	for nth := range int64(4) {
		var dev driver.Device = unlocked{p.Device()}
		if nth > 0 {
			refusing.SetRules(fault.Rule{Kind: intercept.AllocHost, Nth: nth})
			dev = refusing
		}
		s := tensor.NewPlace(tensor.Config{Device: dev, Allocator: p.Allocator(), Backend: p.Backend()}).Scope()
		all, err := c.LoadAll(t.Context(), s.Place, nil)
		testkit.Must(t, err)
		if got := append(tensortest.Content(t, all["big"]), tensortest.Content(t, all["small"])...); !bytes.Equal(got, data) {
			t.Errorf("call %d: other bytes", nth)
		}
		s.Close()
		if nth == 1 && refusing.Failed() != 1 {
			t.Error("a large load has not asked for page-locked memory")
		}
	}
	testkit.Must(t, p.Allocator().(mem.Trimmer).EmptyCache())
	if now := leaks().String(); now != before {
		t.Errorf("the device has %s, before the loads %s", now, before)
	}
}

// An unlocked device has no page-locked memory.
type unlocked struct{ driver.Device }

func (unlocked) Pinned() driver.Pinned { return nil }

// A checkpoint without tensors is an empty map, to which the caller may add tensors.
func TestLoadAllOfNothing(t *testing.T) {
	c, err := Open(put(t, t.TempDir(), "x.safetensors", raw("{}", nil)), Options{})
	testkit.Must(t, err)
	defer c.Close()
	all, err := c.LoadAll(t.Context(), tensortest.Host(t), nil)
	if testkit.Must(t, err); all == nil || len(all) != 0 {
		t.Errorf("%v", all)
	}
}

// A load that ends halfway leaves nothing behind.
func TestLoadAllThatFailsLeavesNothing(t *testing.T) {
	p := tensortest.Sim(t)
	path, data := manyPieces(t, t.TempDir(), 0)
	c, err := Open(path, Options{})
	testkit.Must(t, err)
	defer c.Close()
	for after := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		all, err := c.LoadAll(ctx, p, func(done, total int64) {
			if calls++; calls > after {
				cancel()
			}
		})
		cancel()
		if all != nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) || calls != after+1 {
			t.Errorf("canceled after %d pieces: %v, %d calls", after, err, calls)
		}
	}
	// No room for the second tensor.
	limited := tensor.NewPlace(tensor.Config{Device: p.Device(), Allocator: layer.NewLimiter(p.Allocator(), int64(len(data))+1<<20), Backend: p.Backend()})
	path = put(t, t.TempDir(), "two.safetensors", raw(fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%[1]d]},"b":{"dtype":"U8","shape":[%[1]d],"data_offsets":[%[1]d,%d]}}`,
		len(data), 2*len(data)), append(data, data...)))
	two, err := Open(path, Options{})
	testkit.Must(t, err)
	defer two.Close()
	if all, err := two.LoadAll(t.Context(), limited, nil); all != nil || !errors.Is(err, mem.ErrNoMemory) || !strings.Contains(err.Error(), `tensor "b"`) {
		t.Errorf("without room: %v", err)
	}
	if leaks := limited.Leaks(); leaks.Count != 0 {
		t.Errorf("%v", leaks)
	}
	// A file that became shorter.
	if c.memory.Mapped() {
		testkit.Must(t, os.Truncate(c.path, transfer.Piece))
		if all, err := c.LoadAll(t.Context(), p, nil); all != nil || err == nil || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("of a truncated file: %v", err)
		}
	}
	// p's own Close reports leaks.
}

func TestNamesAndTypesThatCannotBeLoaded(t *testing.T) {
	p := tensortest.Host(t)
	f, err := Open("testdata/python/types.safetensors", Options{})
	testkit.Must(t, err)
	defer f.Close()
	if _, err := f.Load(p, "none"); !errors.Is(err, ErrNoTensor) || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("%v", err)
	}
	if _, ok := f.Info("none"); ok {
		t.Error("there is no such tensor")
	}
	info, ok := f.Info("of.f8_e8m0")
	if !ok || info.DType != dtype.Invalid || info.Type != "F8_E8M0" || info.Size != 6 {
		t.Errorf("%+v", info)
	}
	_, one := f.Load(p, "of.f8_e8m0")
	_, all := f.LoadAll(t.Context(), p, nil)
	for _, err := range []error{one, all} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "F8_E8M0") {
			t.Errorf("%v", err)
		}
	}
}

// A slice has the bytes that slicing the whole tensor gives.
func TestLoadSliceIsASliceOfTheWhole(t *testing.T) {
	r := testkit.Rand(t)
	dir := t.TempDir()
	for where, p := range tensortest.HostAndSim(t) {
		for i := range 60 {
			shape := make([]int, 1+r.IntN(4))
			n := 2
			for k := range shape {
				shape[k] = r.IntN(7)
				if r.IntN(10) == 0 {
					shape[k] = 300
				}
				n *= shape[k]
			}
			data := bytesOf(n)
			header := fmt.Sprintf(`{"x":{"dtype":"F16","shape":%s,"data_offsets":[0,%d]}}`, strings.ReplaceAll(fmt.Sprint(shape), " ", ","), n)
			f, err := Open(put(t, dir, fmt.Sprint(where, i), raw(header, data)), Options{Copy: r.IntN(2) == 0})
			testkit.Must(t, err)
			axis := r.IntN(len(shape))
			start := r.IntN(shape[axis] + 1)
			length := r.IntN(shape[axis] - start + 1)
			s := p.Scope()
			whole, err := f.Load(s.Place, "x")
			testkit.Must(t, err)
			want, err := whole.Narrow(axis, start, length)
			testkit.Must(t, err)
			named := axis
			if r.IntN(2) == 0 {
				named -= len(shape)
			}
			got, err := f.LoadSlice(s.Place, "x", named, start, length)
			testkit.Must(t, err)
			if !slices.Equal(got.Shape(), want.Shape()) || !bytes.Equal(tensortest.Content(t, got), tensortest.Content(t, want)) {
				t.Errorf("%s: %v, axis %d, %d from %d: %v %x, want %x", where, shape, axis, length, start, got.Brief(), tensortest.Content(t, got), tensortest.Content(t, want))
			}
			if size := got.Storage().Size(); size != int64(2*got.Len()) {
				t.Errorf("%s: %v takes %d bytes", where, got.Brief(), size)
			}
			for _, bad := range [][3]int{{len(shape), 0, 0}, {-len(shape) - 1, 0, 0}, {axis, -1, 1}, {axis, 0, -1}, {axis, 1, shape[axis]}, {axis, shape[axis] + 1, 0}, {axis, math.MaxInt, math.MaxInt}} {
				if _, err := f.LoadSlice(s.Place, "x", bad[0], bad[1], bad[2]); err == nil || !strings.Contains(err.Error(), `"x"`) {
					t.Errorf("%v of %v: %v", bad, shape, err)
				}
			}
			s.Close()
			testkit.Must(t, f.Close())
		}
	}
}

// Long runs and short ones, of more than one piece.
func TestLoadSliceOfManyPieces(t *testing.T) {
	p := tensortest.Sim(t)
	for _, shape := range [][2]int{{40, 1 << 20}, {1 << 16, 300}} {
		n := shape[0] * shape[1]
		data := bytesOf(n)
		header := fmt.Sprintf(`{"x":{"dtype":"I8","shape":[%d,%d],"data_offsets":[0,%d]}}`, shape[0], shape[1], n)
		f, err := Open(put(t, t.TempDir(), "x", raw(header, data)), Options{})
		testkit.Must(t, err)
		length := shape[1] * 2 / 3
		x, err := f.LoadSlice(p, "x", 1, 5, length)
		testkit.Must(t, err)
		var want []byte
		for i := range shape[0] {
			want = append(want, data[i*shape[1]+5:][:length]...)
		}
		if !bytes.Equal(tensortest.Content(t, x), want) {
			t.Errorf("%v: other bytes", shape)
		}
		x.Release()
		testkit.Must(t, f.Close())
	}
}

func TestOpenShardedOfDirectories(t *testing.T) {
	p := tensortest.Host(t)
	dir := t.TempDir()
	file := raw(good, make([]byte, 16))
	if _, err := OpenSharded(dir, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	put(t, dir, "model.safetensors", file)
	put(t, dir, "config.json", nil)
	s, err := OpenSharded(dir, Options{})
	testkit.Must(t, err)
	x, err := s.Load(p, "t")
	testkit.Must(t, err)
	x.Release()
	if _, err := s.LoadSlice(p, "u", 0, 0, 0); !errors.Is(err, ErrNoTensor) {
		t.Errorf("%v", err)
	}
	testkit.Must(t, s.Close())
	put(t, dir, "other.safetensors", file)
	if _, err := OpenCheckpoint(dir, Options{}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "2 files") {
		t.Errorf("two files without an index: %v", err)
	}
	put(t, dir, "model.safetensors.index.json", []byte(`{"weight_map":{"t":"other.safetensors"}}`))
	if _, err := OpenSharded(dir, Options{}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "both") {
		t.Errorf("an index beside the whole: %v", err)
	}
	testkit.Must(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	s, err = OpenSharded(dir, Options{})
	testkit.Must(t, err)
	if got := s.Files(); len(got) != 1 || filepath.Base(got[0]) != "other.safetensors" {
		t.Errorf("%q", got)
	}
	testkit.Must(t, s.Close())
	if _, err := OpenCheckpoint(filepath.Join(dir, "none"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
