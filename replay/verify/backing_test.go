package verify_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/replay/verify"
)

// Exact replays of recordings with memory behind the recorded addresses: every block keeps its contents, and all memory
// is given back.
func TestVerifyPaintsEveryBlock(t *testing.T) {
	for _, name := range []string{"graphtrees", "nosplit.expandable", "switched"} {
		t.Run(name, func(t *testing.T) {
			s := readTrace(t, name)
			dev := drivertest.OpenSim(t, 0)
			v, err := verify.Verify(s, verify.Options{Device: dev})
			if err != nil {
				t.Fatal(err)
			}
			if v.Exact && (v.Painted < v.Allocs-v.Restored || v.PaintedBytes < v.Peaks.Requested) {
				t.Errorf("%d blocks of %d bytes painted, of %d allocations", v.Painted, v.PaintedBytes, v.Allocs)
			}
			if err := dev.Close(); err != nil || !dev.Leaks().Empty() {
				t.Errorf("left on the device: %v, %v", dev.Leaks(), err)
			}
		})
	}
}

// sharesMemory is a device on which two segments have the same memory.
type sharesMemory struct {
	driver.Device
	first driver.Pointer
	size  int64
}

func (d *sharesMemory) Alloc(size int64) (driver.Pointer, error) {
	p, err := d.Device.Alloc(size)
	if size < 1<<20 || err != nil || d.first != 0 && size > d.size {
		return p, err
	}
	if d.first == 0 {
		d.first, d.size = p, size
	}
	return d.first, nil
}

func TestVerifyFindsBlocksThatShareMemory(t *testing.T) {
	inner := drivertest.OpenSim(t, 0)
	v, err := verify.Verify(readTrace(t, "graphtrees"), verify.Options{Device: &sharesMemory{Device: inner}})
	if changed := (*verify.ContentsError)(nil); !errors.As(err, &changed) || changed.Op == 0 {
		t.Errorf("%+v: %v, want a ContentsError that says where", v, err)
	}
}

// compiles is a device that runs a Go equivalent of contents.ptx.
type compiles struct {
	driver.Device
	modules int // open
}

func (d *compiles) Kernels() driver.Kernels { return compiled{d.Device.Kernels(), d} }

type compiled struct {
	driver.Kernels
	d *compiles
}

func (k compiled) Load(code []byte) (driver.Module, error) {
	if !bytes.Contains(code, []byte(".visible .entry paint(")) {
		return nil, &driver.Error{Call: "Load", Code: driver.ErrInvalid}
	}
	k.d.modules++
	return module{k.d}, nil
}

type module struct{ d *compiles }

func (m module) Close() error { m.d.modules--; return nil }

func (m module) Function(name string) (driver.Function, error) {
	if name != "paint" && name != "compare" {
		return nil, &driver.Error{Call: "Function", Code: driver.ErrInvalid}
	}
	return function(name), nil
}

type function string

func (f function) Name() string          { return string(f) }
func (f function) Limits() driver.Limits { return driver.Limits{} }

func (k compiled) Launch(s driver.Stream, l driver.Kernel) error {
	if k.d.modules == 0 {
		return &driver.Error{Call: "Launch", Code: driver.ErrInvalid, Detail: "the module is closed"}
	}
	arg := func(i int) uint64 { return binary.NativeEndian.Uint64(l.Args[i].Bytes()) }
	words, n, base := driver.Pointer(arg(0)), int64(arg(1)), arg(2)
	block := driver.Range{Ptr: words, Size: 8 * n}
	if block.Size%512 != 0 || l.Grid[0] == 0 || l.Block[0] == 0 {
		return &driver.Error{Call: "Launch", Code: driver.ErrInvalid, Detail: "blocks are painted in part"}
	}
	if l.Code.Name() == "paint" {
		return k.Kernels.Launch(s, driver.Kernel{Name: "paint", Writes: []driver.Range{block}, Func: func(m driver.Memory) error {
			b := make([]byte, block.Size)
			for i := range uint64(n) {
				binary.LittleEndian.PutUint64(b[8*i:], base+i)
			}
			return m.Store(words, b)
		}})
	}
	first := driver.Range{Ptr: driver.Pointer(arg(3)), Size: 8}
	return k.Kernels.Launch(s, driver.Kernel{
		Name: "compare", Reads: []driver.Range{block, first}, Writes: []driver.Range{first}, Func: func(m driver.Memory) error {
			b, least := make([]byte, block.Size), make([]byte, 8)
			if err := errors.Join(m.Load(b, words), m.Load(least, first.Ptr)); err != nil {
				return err
			}
			for i := range uint64(n) {
				if binary.LittleEndian.Uint64(b[8*i:]) != base+i {
					return m.Store(first.Ptr, binary.LittleEndian.AppendUint64(nil, min(i, binary.LittleEndian.Uint64(least))))
				}
			}
			return nil
		},
	})
}

// The device's own kernels paint every block, also those of which less than a word was asked for.
func TestVerifyPaintsWithKernels(t *testing.T) {
	s := readTrace(t, "nosplit.expandable")
	inner := drivertest.OpenDevice(t, "host:total=8GiB")
	dev := &compiles{Device: inner}
	v, err := verify.Verify(s, verify.Options{Device: dev})
	if err != nil || !v.Exact || v.Painted < v.Allocs {
		t.Errorf("%+v, %v", v, err)
	}
	if free, total, err := inner.Available(); err != nil || free != total || dev.modules != 0 {
		t.Errorf("%d of %d bytes free, %d modules open, %v", free, total, dev.modules, err)
	}
	bad := &compiles{Device: &sharesMemory{Device: inner}}
	_, err = verify.Verify(readTrace(t, "graphtrees"), verify.Options{Device: bad})
	if changed := (*verify.ContentsError)(nil); !errors.As(err, &changed) || changed.Op == 0 || changed.Want == changed.Got {
		t.Errorf("%v, want a ContentsError that says where", err)
	}
}

// A driver call of each kind fails, the first one or one in the middle: Verify reports it, and still gives everything
// back. It names the memory that it could not give back because the release itself failed.
func TestVerifyGivesBackWhatItTookAfterFailures(t *testing.T) {
	for name, kinds := range map[string][]intercept.Kind{
		"graphpools.expandable": {intercept.Unmap}, // while it runs
		"graphtrees":            {intercept.Alloc, intercept.Free, intercept.CopyIn, intercept.CopyOut},
		"nosplit.expandable":    {intercept.Reserve, intercept.Release, intercept.Create, intercept.Drop, intercept.Map, intercept.Unmap, intercept.Sync},
	} {
		s := readTrace(t, name)
		verify := func(rules ...fault.Rule) (calls map[intercept.Kind]int64, left int64, err error) {
			inner := drivertest.OpenSim(t, 0)
			dev := fault.Wrap(inner, rules...)
			_, err = verify.Verify(s, verify.Options{Device: dev})
			calls = map[intercept.Kind]int64{}
			for _, k := range kinds {
				calls[k] = dev.CallsOf(k)
			}
			free, total, broken := inner.Available()
			if broken != nil {
				t.Error(broken)
			}
			return calls, total - free, err
		}
		calls, left, err := verify()
		if err != nil || left != 0 {
			t.Fatalf("%s: %d bytes left, %v", name, left, err)
		}
		for _, k := range kinds {
			if calls[k] == 0 {
				t.Errorf("%s: no %s", name, k)
			}
			for _, nth := range []int64{1, (calls[k] + 1) / 2} {
				_, left, err := verify(fault.Rule{Kind: k, Nth: nth})
				if !errors.Is(err, driver.ErrLost) && !errors.Is(err, driver.ErrNoMemory) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %s number %d of %d fails: %v", name, k, nth, calls[k], err)
				}
				if left != 0 && !strings.Contains(err.Error(), "free the device's memory") {
					t.Errorf("%s: %s number %d of %d fails: %d bytes left: %v", name, k, nth, calls[k], left, err)
				}
			}
		}
	}
}
