//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestConformance runs the suite of all drivers, on two devices in turn, whenever the device does its work.
func TestConformance(t *testing.T) {
	for pace, name := range []string{"late", "at once", "in the background"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, fakecuda.Options{Pace: fakecuda.Pace(pace), Memory: 32 << 20, Granularity: 64 << 10})
			c := driverOf(m)
			opened := 0
			drivertest.Run(t, func(t testing.TB) driver.Device {
				opened++
				d, err := c.Open(fmt.Sprint(opened % 2))
				testkit.Must(t, err)
				return d
			})
		})
	}
}

// TestPagesAreInReachOfNetworkCards: as PyTorch's expandable segments are, where the device lets them.
func TestPagesAreInReachOfNetworkCards(t *testing.T) {
	for name, able := range map[string]int32{"without": 0, "with": 1} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, fakecuda.Options{Attributes: map[int32]int32{110: able}})
			d := openOn(t, m, "")
			vm, size := d.VirtualMemory(), d.Info().Granularity
			p, err := vm.Reserve(size)
			testkit.Must(t, err)
			page, err := vm.Create(size)
			testkit.Must(t, err)
			testkit.Must(t, vm.Map(p, page))
			if got := m.RDMA(uint64(p)); got != (able == 1) {
				t.Errorf("the page is in reach: %v", got)
			}
			testkit.Must(t, vm.Unmap(p, size))
			testkit.Must(t, vm.Drop(page))
			testkit.Must(t, vm.Release(p, size))
		})
	}
}

// TestWithoutVirtualMemory: an older or smaller device.
func TestWithoutVirtualMemory(t *testing.T) {
	m := newMachine(t, fakecuda.Options{NoVirtual: true})
	d := openOn(t, m, "")
	if d.VirtualMemory() != nil || d.Info().Granularity != 0 {
		t.Errorf("VirtualMemory %v, granularity %d: want none", d.VirtualMemory(), d.Info().Granularity)
	}
}

// TestContextsFollowGoroutines: goroutines move between threads, and a context belongs to a thread. The machine refuses
// a call with the wrong one.
func TestContextsFollowGoroutines(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Pace: fakecuda.Background})
	devices := []*device{openOn(t, m, "0"), openOn(t, m, "1")}
	var wg, locked sync.WaitGroup
	locked.Add(2)
	errs := make([]error, 64)
	for g := range errs {
		wg.Go(func() {
			if g < 2 { // these two have a thread each, however few run at a time
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				locked.Done()
				locked.Wait()
			}
			errs[g] = roam(devices, uint64(g))
		})
	}
	wg.Wait()
	testkit.Must(t, errors.Join(errs...))
	threads := map[int]bool{}
	for _, c := range m.Log() {
		threads[c.Thread] = true
	}
	if len(threads) < 2 {
		t.Errorf("all calls came from %d thread: nothing was shown", len(threads))
	}
}

// roam works on both devices in turn.
func roam(devices []*device, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	var err error
	for range 20 {
		d := devices[rng.IntN(2)]
		s, e := d.NewStream(driver.StreamOptions{})
		if e != nil {
			return e
		}
		p, e := d.Alloc(4096)
		if e != nil {
			return e
		}
		want, got := byte(rng.Uint32()), make([]byte, 4096)
		err = errors.Join(err, s.Fill(p, want, 4096))
		runtime.Gosched()
		mark, e := s.Mark()
		err = errors.Join(err, e, d.zero.WaitFor(s, mark), s.CopyOut(got, p), s.Sync(context.Background()), s.Close(), d.Free(p))
		if err != nil || got[0] != want || got[4095] != want {
			return fmt.Errorf("seed %d: %d and %d came back, not %d: %w", seed, got[0], got[4095], want, err)
		}
	}
	return err
}

func TestOpen(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	c := driverOf(m)
	all, err := c.Devices()
	testkit.Must(t, err)
	if len(all) != 2 || all[1].Spec != "cuda:1" || all[1].Info.Ordinal != 1 || all[1].Free != -1 {
		t.Fatalf("Devices: %+v", all)
	}
	uuid := all[1].Info.UUID
	if len(uuid) != len("GPU-00000000-0000-0000-0000-000000000000") || !strings.HasPrefix(uuid, "GPU-") {
		t.Errorf("UUID %q: want one as nvidia-smi writes it", uuid)
	}
	for args, ordinal := range map[string]int{"": 0, "0": 0, "1": 1, uuid: 1, "GPU-" + strings.ToUpper(uuid[4:]): 1} {
		if got := openOn(t, m, args).Info().Ordinal; got != ordinal {
			t.Errorf("Open(%q) is device %d, want %d", args, got, ordinal)
		}
	}
	for args, code := range map[string]error{
		"2": driver.ErrAbsent, "-1": driver.ErrAbsent, "first": driver.ErrInvalid, "0x0": driver.ErrInvalid,
		"GPU-00000000-1111-2222-3333-444444444444": driver.ErrAbsent,
	} {
		_, err := c.Open(args)
		wantErr(t, "Open("+args+")", err, code)
	}
	info := openOn(t, m, "1").Info()
	if info.Driver != "cuda" || info.Compute < 50 || info.Multiprocessors < 1 || info.SharedMemory < 1<<10 || info.L2 < 1 ||
		info.PCI == "" || strings.ToLower(info.PCI) != info.PCI || info.MIG {
		t.Errorf("Info %+v", info)
	}
}

func TestASliceOfAGPUSaysSo(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb"})
	info := openOn(t, m, "").Info()
	if !info.MIG || !strings.HasPrefix(info.UUID, "MIG-") {
		t.Errorf("MIG %v, UUID %q", info.MIG, info.UUID)
	}
	if got := openOn(t, m, info.UUID).Info(); got != info {
		t.Errorf("opened by UUID it is %+v", got)
	}
}

// TestALostContextStaysLost: every call says so, with the first cause.
func TestALostContextStaysLost(t *testing.T) {
	m := fakecuda.New(fakecuda.Options{})
	t.Cleanup(m.Close)
	d, err := driverOf(m).Open("0")
	testkit.Must(t, err)
	other := openOn(t, m, "1")
	s := drivertest.NewStream(t, d)
	p := drivertest.Alloc(t, d, 64)
	testkit.Must(t, s.Fill(p, 1, 64))
	mark, err := s.Mark()
	testkit.Must(t, err)
	m.Break(0, fakecuda.IllegalAddress)
	wantErr(t, "Sync", s.Sync(context.Background()), driver.ErrLost, "CUDA_ERROR_ILLEGAL_ADDRESS")
	for name, call := range map[string]func() error{
		"Fill":      func() error { return s.Fill(p, 1, 64) },
		"Alloc":     func() error { _, err := d.Alloc(64); return err },
		"Available": func() error { _, _, err := d.Available(); return err },
		"Reached":   func() error { _, err := s.Reached(mark); return err },
		"NewStream": func() error { _, err := d.NewStream(driver.StreamOptions{}); return err },
	} {
		wantErr(t, name, call(), driver.ErrLost, "CUDA_ERROR_ILLEGAL_ADDRESS", "first seen by Stream.Sync")
	}
	wantErr(t, "Close", d.Close(), driver.ErrLost, "CUDA_ERROR_ILLEGAL_ADDRESS")
	testkit.Must(t, d.Close())
	testkit.Must(t, other.zero.Sync(context.Background())) // the other device is well
}

// TestOutOfMemorySaysHowMuchIsLeft: other processes may hold it.
func TestOutOfMemorySaysHowMuchIsLeft(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Memory: 64 << 20})
	d := openOn(t, m, "")
	p := alloc(t, d, 48<<20)
	_, err := d.Alloc(32 << 20)
	wantErr(t, "Alloc", err, driver.ErrNoMemory, "32.00MiB", "16.00MiB of 64.00MiB", "device 0")
	testkit.Must(t, d.Free(p))
}

// TestCloseGivesEverythingBack with work queued: what it leaves, newMachine tells.
func TestCloseGivesEverythingBack(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	s := newTestStream(t, d)
	newTestStream(t, d)
	p := alloc(t, d, 1<<20)
	alloc(t, d, 1)
	testkit.Must(t, s.Fill(p, 1, 1<<20))
	mark := markOf(t, s)
	testkit.Must(t, d.zero.WaitFor(s, mark))
	markOf(t, d.zero)
	vm, g := d.VirtualMemory(), d.Info().Granularity
	at, err := vm.Reserve(8 * g)
	testkit.Must(t, err)
	a, err := vm.Create(g)
	testkit.Must(t, err)
	b, err := vm.Create(2 * g)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(at, a, b, a))
	testkit.Must(t, vm.Drop(b))
	testkit.Must(t, d.Close())
	if !reached(t, s, mark) {
		t.Error("a mark is not reached after Close")
	}
	if used := m.Used(0); used != 0 {
		t.Errorf("%d bytes in use after Close", used)
	}
}

// TestNothingPointsAtAStack: every call of the machine moves the caller's stack and collects garbage first. A result
// that was to be written to a variable on the stack would be lost.
func TestNothingPointsAtAStack(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Harsh: true})
	testkit.Must(t, errors.Join(exercise(m)...))
}

// TestCloseWaitsForThoseWhoWait: a Sync that is under way ends well when the device is closed.
func TestCloseWaitsForThoseWhoWait(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Pace: fakecuda.Background})
	d := openOn(t, m, "")
	s := newTestStream(t, d)
	p := alloc(t, d, 64)
	m.Hold(uint64(s.handle))
	testkit.Must(t, s.Fill(p, 1, 64))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	synced, closed := make(chan error, 1), make(chan error, 1)
	go func() { synced <- s.Sync(ctx) }()
	for sleeps := false; !sleeps; runtime.Gosched() {
		s.marks.mu.Lock()
		sleeps = s.marks.waiting != nil
		s.marks.mu.Unlock()
	}
	go func() { closed <- d.Close() }()
	m.Release(uint64(s.handle))
	testkit.Must(t, errors.Join(<-synced, <-closed))
	wantErr(t, "Sync", s.Sync(ctx), driver.ErrClosed)
}
