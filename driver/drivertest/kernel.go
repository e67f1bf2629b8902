package drivertest

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// goKernels returns the device's kernels, or nil if it has none or does not run Go functions.
func goKernels(t testing.TB, d driver.Device) driver.Kernels {
	t.Helper()
	k := d.Kernels()
	if k == nil {
		return nil
	}
	var ran atomic.Bool
	err := k.Launch(d.DefaultStream(), driver.Kernel{
		Name: "probe", Func: func(driver.Memory) error { ran.Store(true); return nil },
	})
	if errors.Is(err, driver.ErrUnsupported) {
		return nil
	}
	testkit.Must(t, err)
	testkit.Must(t, d.DefaultStream().Sync(context.Background()))
	if !ran.Load() {
		t.Fatal("a kernel was launched and did not run before Sync returned")
	}
	return k
}

// changeKernel is a kernel that writes the n bytes at src, each plus delta, to dst. The ranges are equal or disjoint.
func changeKernel(dst, src driver.Pointer, n int, delta byte) driver.Kernel {
	return driver.Kernel{
		Name:   "change",
		Reads:  []driver.Range{{Ptr: src, Size: int64(n)}},
		Writes: []driver.Range{{Ptr: dst, Size: int64(n)}},
		Func: func(m driver.Memory) error {
			b := make([]byte, n)
			if err := m.Load(b, src); err != nil {
				return err
			}
			for i := range b {
				b[i] += delta
			}
			return m.Store(dst, b)
		},
	}
}

func testKernels(t *testing.T, open openFunc) {
	d := open(t)
	k := goKernels(t, d)
	if k == nil {
		return
	}
	a := NewStream(t, d)
	b := NewStream(t, d)
	const size = 3001
	p := Alloc(t, d, size)
	q := Alloc(t, d, size)

	// Kernels run in order with other work of their stream, and after marks of others.
	testkit.Must(t, a.Fill(p, 0, size))
	for i := range 100 {
		testkit.Must(t, k.Launch(a, changeKernel(p, p, size, 1)))
		testkit.Must(t, a.Copy(q, p, size))
		testkit.Must(t, k.Launch(a, changeKernel(p, q, size, 1)))
		if i%10 == 9 {
			testkit.Must(t, b.WaitFor(a, mustMark(t, a)))
			testkit.Must(t, k.Launch(b, changeKernel(p, p, size, 10)))
			testkit.Must(t, a.WaitFor(b, mustMark(t, b)))
		}
	}
	total := 2*100 + 10*10
	wantBytes(t, a, p, bytes.Repeat([]byte{byte(total & 0xff)}, size))

	_, err := k.Load([]byte("code"))
	WantErr(t, "Load on a device whose kernels are Go functions", err, driver.ErrUnsupported)

	// One without a function does nothing, but it is work.
	testkit.Must(t, k.Launch(a, driver.Kernel{Name: "nothing", Writes: []driver.Range{{Ptr: p, Size: size}}}))
	m := mustMark(t, a)
	testkit.Must(t, a.Sync(context.Background()))
	if ok, err := a.Reached(m); !ok || err != nil {
		t.Errorf("after Sync: reached %v, %v", ok, err)
	}
	testkit.Must(t, d.Free(p))
	testkit.Must(t, d.Free(q))
}

func testKernelErrors(t *testing.T, open openFunc) {
	d := open(t)
	k := goKernels(t, d)
	if k == nil {
		return
	}
	s := NewStream(t, d)
	bad := errors.New("the kernel's own error")
	// A device that works eagerly may say so at once, others at Sync; it must be said once at the least.
	err := k.Launch(s, driver.Kernel{Name: "bad", Func: func(driver.Memory) error { return bad }})
	if err = errors.Join(err, s.Sync(context.Background())); !errors.Is(err, bad) {
		t.Errorf("Launch and Sync with a kernel that fails: %v, want %q", err, bad)
	}
	// Another stream does not get it.
	testkit.Must(t, d.DefaultStream().Sync(context.Background()))
}
