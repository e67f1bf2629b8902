//go:build linux && (amd64 || arm64) && !nocuda

package dlpack

import (
	"errors"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
	"github.com/ebitengine/purego"
)

var deleted atomic.Int64

// counting is a deleter as another library has it.
var counting = purego.NewCallback(func(self uintptr) { deleted.Add(int64(self)) })

// A C consumer deletes by calling the function in the structure.
func TestCDeletesAnExport(t *testing.T) {
	p := tensortest.Host(t)
	x := filled(t, p, dtype.Float64, 3)
	s := x.Storage()
	m, err := Export(x)
	testkit.Must(t, err)
	old, err := ExportLegacy(x)
	testkit.Must(t, err)
	x.Release()
	if m.Deleter == 0 || m.Deleter != old.Deleter {
		t.Errorf("deleters %#x and %#x", m.Deleter, old.Deleter)
	}
	purego.SyscallN(m.Deleter, m.Address())
	if s.Owners() != 1 {
		t.Errorf("%d owners after the first of two", s.Owners())
	}
	purego.SyscallN(old.Deleter, old.Address())
	if s.Owners() != 0 {
		t.Errorf("%d owners", s.Owners())
	}
}

// Another library's deleter is called once: with the last owner, or at once if the import fails.
func TestImportCallsTheDeleterOnce(t *testing.T) {
	p := tensortest.Host(t)
	import1 := func(change func(*Managed), want error) {
		t.Helper()
		m := foreign([]int64{2, 2}, nil, make([]float32, 4))
		m.Deleter = counting
		if change != nil {
			change(m)
		}
		deleted.Store(0)
		x, err := Import(p, m.Address())
		if !errors.Is(err, want) {
			t.Errorf("%v", err)
		}
		if x.Defined() {
			v := x.T().Retain()
			x.Release()
			if n := deleted.Load(); (n != 0) != (m.Flags == ReadOnly) {
				t.Errorf("deleted before the last owner: %#x", n)
			}
			v.Release()
		}
		if n := deleted.Load(); n != int64(m.Address()) {
			t.Errorf("%#x, want the address %#x once", n, m.Address())
		}
	}
	import1(nil, nil)
	import1(func(m *Managed) { m.Flags = ReadOnly }, nil)
	import1(func(m *Managed) { m.Version.Major = 2 }, ErrVersion)
	import1(func(m *Managed) { m.Tensor.DType.Lanes = 2 }, ErrType)
	import1(func(m *Managed) { m.Tensor.Device.Type = CUDA }, ErrDevice)
	import1(func(m *Managed) { m.Tensor.NDim = -1 }, ErrInvalid)
	m := &Legacy{Tensor: foreign([]int64{2}, nil, make([]float32, 2)).Tensor, Deleter: counting}
	kept = append(kept, m)
	deleted.Store(0)
	x, err := ImportLegacy(p, m.Address())
	testkit.Must(t, err)
	x.Release()
	if n := deleted.Load(); n != int64(uintptr(unsafe.Pointer(m))) {
		t.Errorf("%#x", n)
	}
}

// The deleter waits for the work of every stream that used the memory.
func TestTheDeleterComesAfterQueuedWork(t *testing.T) {
	dev := sim.New(sim.Options{Total: 1 << 30, Completion: sim.OnDemand})
	p := tensortest.On(t, gpu{dev, 0})
	block := drivertest.Alloc(t, dev, 1<<20)
	second := drivertest.NewStream(t, dev)
	m := foreign([]int64{2, 2}, nil, nil)
	m.Tensor.Data, m.Tensor.Device, m.Deleter = uintptr(block), Device{CUDA, 0}, counting
	deleted.Store(0)
	x, err := Import(p, m.Address())
	testkit.Must(t, err)
	testkit.Must(t, x.Use(p.Stream(), true))
	testkit.Must(t, p.Stream().Fill(x.Pointer(), 1, 16))
	testkit.Must(t, x.Use(second, true))
	testkit.Must(t, second.Fill(x.Pointer(), 2, 16))
	mark, err := second.Mark()
	testkit.Must(t, err)
	if done, err := second.Reached(mark); done || err != nil {
		t.Fatalf("the work is done already: %t, %v", done, err)
	}
	x.Release()
	if done, err := second.Reached(mark); !done || err != nil || deleted.Load() == 0 {
		t.Errorf("deleted %#x with work done: %t, %v", deleted.Load(), done, err)
	}
	testkit.Must(t, dev.Free(block))
}
