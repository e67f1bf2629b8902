// Package drivertest is the conformance suite of drivers: tests of what the documentation of package driver promises.
//
//	func TestDriver(t *testing.T) {
//		drivertest.Run(t, func(t testing.TB) driver.Device { return drivertest.OpenDevice(t, "mine") })
//	}
//
// A driver's test calls Run with a function that opens a new device. A driver whose devices access each other's memory
// also calls RunPeers. Package multiprocess has the tests with several processes. An ability that a device lacks is
// only checked to be absent.
//
// A device needs at least 16 MiB and 32 granules of free memory with contents. The suite allocates all of its memory
// and touches a few mebibytes. It does not depend on time; random histories have fixed seeds, which are in the
// subtests' names, and print themselves when they fail.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// The suite requires only what package driver promises, so that it holds for devices that work eagerly, in the
// background, or only when a Sync requires it:
//
//   - no kernel of the suite waits for anything;
//   - two streams touch the same bytes only with a WaitFor or a Sync between them, and every kernel declares exactly the
//     ranges it touches, so that a device may check accesses;
//   - no byte is read before it was written;
//   - an invalid call may return an error that matches driver.ErrInvalid or panic with the prefix "driver", unless package
//     driver says which.
//
// Work that needs no kernel is copies and fills, so that the suite holds for devices that run only compiled code. Tests
// that need work that blocks (a Sync whose context ends, a mark that is not reached yet) are each driver's own.

// Run runs the suite. It calls open at least once for every subtest, with the subtest's t; each call must return a
// device of its own, with nothing allocated. The suite closes the devices.
func Run(t *testing.T, open func(t testing.TB) driver.Device) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, openFunc)
	}{
		{"Info", testInfo},
		{"Alloc", testAlloc},
		{"AllocMisuse", testAllocMisuse},
		{"Exhaustion", testExhaustion},
		{"Available", testAvailable},
		{"CopyInCopyOut", testCopyInCopyOut},
		{"Copy", testCopy},
		{"CopyOverlap", testCopyOverlap},
		{"Fill", testFill},
		{"StreamOrder", testStreamOrder},
		{"Streams", testStreams},
		{"Marks", testMarks},
		{"ManyMarks", testManyMarks},
		{"WaitFor", testWaitFor},
		{"SyncContext", testSyncContext},
		{"StreamMisuse", testStreamMisuse},
		{"StreamClose", testStreamClose},
		{"StreamClosing", testStreamClosing},
		{"MarksWhileClosing", testMarksWhileClosing},
		{"DeviceClosing", testDeviceClosing},
		{"Kernels", testKernels},
		{"KernelErrors", testKernelErrors},
		{"VirtualStates", testVirtualStates},
		{"VirtualAliases", testVirtualAliases},
		{"VirtualRemap", testVirtualRemap},
		{"VirtualMapRefused", testVirtualMapRefused},
		{"VirtualMisuse", testVirtualMisuse},
		{"VirtualExhaustion", testVirtualExhaustion},
		{"Pinned", testPinned},
		{"PinnedOrder", testPinnedOrder},
		{"PinnedMisuse", testPinnedMisuse},
		{"Registered", testRegistered},
		{"Timing", testTiming},
		{"TimingMisuse", testTimingMisuse},
		{"Graphs", testGraphs},
		{"GraphFork", testGraphFork},
		{"GraphRefused", testGraphRefused},
		{"GraphUnjoined", testGraphUnjoined},
		{"GraphMarks", testGraphMarks},
		{"GraphOrder", testGraphOrder},
		{"GraphOrderRandom", testGraphOrderRandom},
		{"GraphInFlight", testGraphInFlight},
		{"GraphOfPinned", testGraphOfPinned},
		{"SharedPages", testSharedPages},
		{"Visible", testVisible},
		{"LibraryCall", testLibraryCall},
		{"SharingMisuse", testSharingMisuse},
		{"SharedEvents", testSharedEvents},
		{"Processes", testProcesses},
		{"Close", testClose},
		{"CloseAbilities", testCloseAbilities},
		{"Concurrent", testConcurrent},
		{"ConcurrentStream", testConcurrentStream},
		{"Random", testRandom},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, func(t testing.TB) driver.Device {
				d := open(t)
				t.Cleanup(func() {
					if err := d.Close(); err != nil {
						t.Errorf("Close at the end: %v", err)
					}
				})
				return d
			})
		})
	}
}

// An openFunc opens a device that is closed when the test ends.
type openFunc func(testing.TB) driver.Device

func testInfo(t *testing.T, open openFunc) {
	d := open(t)
	info := d.Info()
	if info.Driver == "" || info.Name == "" {
		t.Errorf("Driver %q and Name %q: want both", info.Driver, info.Name)
	}
	if info.Ordinal < 0 {
		t.Errorf("Ordinal %d", info.Ordinal)
	}
	if info.TotalMemory < 16<<20 {
		t.Errorf("TotalMemory %d: the suite needs 16 MiB", info.TotalMemory)
	}
	if !powerOfTwo(info.Alignment) {
		t.Errorf("Alignment %d: want a power of two", info.Alignment)
	}
	if (info.Granularity != 0) != (d.VirtualMemory() != nil) {
		t.Errorf("Granularity %d, but VirtualMemory is nil: %v", info.Granularity, d.VirtualMemory() == nil)
	}
	if info.Granularity != 0 && !powerOfTwo(info.Granularity) {
		t.Errorf("Granularity %d: want a power of two", info.Granularity)
	}
	if again := d.Info(); again != info {
		t.Errorf("Info changed from %+v to %+v", info, again)
	}
	free, total, err := d.Available()
	testkit.Must(t, err)
	if total != info.TotalMemory || free <= 0 || free > total {
		t.Errorf("Available is %d of %d, TotalMemory %d", free, total, info.TotalMemory)
	}
}

// testProcesses: a device that tells who uses it names this process, once.
func testProcesses(t *testing.T, open openFunc) {
	all, err := open(t).Processes()
	if errors.Is(err, driver.ErrUnsupported) {
		return
	}
	testkit.Must(t, err)
	selves := 0
	for i, p := range all {
		if p.Self != (p.PID == os.Getpid()) || p.Bytes < -1 {
			t.Errorf("process %d: %+v", os.Getpid(), p)
		}
		if p.Self {
			selves++
		}
		if slices.ContainsFunc(all[:i], func(o driver.ProcessMemory) bool { return o.PID == p.PID }) {
			t.Errorf("process %d is listed twice", p.PID)
		}
	}
	if len(all) == 0 || selves > 1 {
		t.Errorf("%d processes, %d of them this one", len(all), selves)
	}
}

func testClose(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	p := Alloc(t, d, 4096)
	testkit.Must(t, s.Fill(p, 1, 4096))
	vm, kernels, def, info := d.VirtualMemory(), d.Kernels(), d.DefaultStream(), d.Info()
	m, err := s.Mark()
	testkit.Must(t, err)

	testkit.Must(t, d.Close()) // with work queued and memory held
	testkit.Must(t, d.Close())
	if got := d.Info(); got != info {
		t.Errorf("Info after Close is %+v, before %+v", got, info)
	}
	for name, call := range map[string]func() error{
		"Available": func() error { _, _, err := d.Available(); return err },
		"Alloc":     func() error { _, err := d.Alloc(4096); return err },
		"Free":      func() error { return d.Free(p) },
		"NewStream": func() error { _, err := d.NewStream(driver.StreamOptions{}); return err },
		"Copy":      func() error { return s.Copy(p, p+2048, 1024) },
		"CopyIn":    func() error { return s.CopyIn(p, make([]byte, 8)) },
		"CopyOut":   func() error { return s.CopyOut(make([]byte, 8), p) },
		"Fill":      func() error { return s.Fill(p, 2, 16) },
		"Mark":      func() error { _, err := s.Mark(); return err },
		"WaitFor":   func() error { return def.WaitFor(s, m) },
		"Sync":      func() error { return s.Sync(context.Background()) },
		"default":   func() error { return def.Fill(p, 2, 16) },
	} {
		WantErr(t, name+" after Close", call(), driver.ErrClosed)
	}
	if kernels != nil {
		WantErr(t, "Launch after Close", kernels.Launch(s, driver.Kernel{Name: "late"}), driver.ErrClosed)
	}
	if vm != nil {
		_, err := vm.Reserve(info.Granularity)
		WantErr(t, "Reserve after Close", err, driver.ErrClosed)
		_, err = vm.Create(info.Granularity)
		WantErr(t, "Create after Close", err, driver.ErrClosed)
	}
}

func powerOfTwo(n int64) bool { return n > 0 && n&(n-1) == 0 }

// WantErr fails the test unless err is an *driver.Error that matches code.
func WantErr(t testing.TB, what string, err, code error) {
	t.Helper()
	if e := (*driver.Error)(nil); !errors.Is(err, code) || !errors.As(err, &e) {
		t.Errorf("%s: got %v (%T), want a *driver.Error that matches %q", what, err, err, code)
	}
}

// wantPanic fails the test unless f panics with the prefix "driver".
func wantPanic(t testing.TB, what string, f func() error) {
	t.Helper()
	if err, panicked := outcome(t, f); !panicked {
		t.Errorf("%s: returned %v, want a panic", what, err)
	}
}

// wantRefused fails the test unless f fails with ErrInvalid or panics with the prefix "driver".
func wantRefused(t testing.TB, what string, f func() error) {
	t.Helper()
	if err, panicked := outcome(t, f); !panicked {
		WantErr(t, what, err, driver.ErrInvalid)
	}
}

// outcome calls f and says whether it panicked.
func outcome(t testing.TB, f func() error) (err error, panicked bool) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := recover(); v != nil {
			panicked = true
			if text := fmt.Sprint(v); !strings.HasPrefix(text, "driver") {
				t.Errorf("panic %q: want the prefix \"driver\"", text)
			}
		}
	}()
	return f(), false
}
