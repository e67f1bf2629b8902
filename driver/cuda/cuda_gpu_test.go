//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// These tests need an NVIDIA GPU without other users: run them with the build tag gpu.

func TestGPUConformance(t *testing.T) {
	drivertest.Run(t, func(t testing.TB) driver.Device {
		d, err := driver.Open("cuda:0")
		testkit.Must(t, err)
		return d
	})
}

func TestGPUDiagnoseAndDevices(t *testing.T) {
	for _, f := range driver.Lookup("cuda").Diagnose() {
		t.Logf("%s: %s [%s] (%s)", f.What, f.Found, f.State, f.Where)
		if f.State == driver.Broken {
			t.Errorf("broken, on a machine with a GPU: %+v", f)
		}
	}
	all, err := driver.Lookup("cuda").Devices()
	testkit.Must(t, err)
	for _, l := range all {
		t.Logf("%s: %+v, %d bytes free", l.Spec, l.Info, l.Free)
	}
	d := drivertest.OpenDevice(t, "cuda:0")
	info := d.Info()
	if info.UUID != all[0].Info.UUID || !strings.HasPrefix(info.UUID, "GPU-") {
		t.Errorf("open it is %+v, listed %+v", info, all[0].Info)
	}
	byUUID, err := driver.Open("cuda:" + info.UUID)
	testkit.Must(t, err)
	testkit.Must(t, byUUID.Close())
}

// TestGPUSyncEndsWithItsContext ends a Sync while work takes longer.
func TestGPUSyncEndsWithItsContext(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := drivertest.NewStream(t, d)
	const size = 8 << 30
	p := drivertest.Alloc(t, d, size)
	for range 50 { // about 2 ms each on an H200
		testkit.Must(t, s.Fill(p, 1, size))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	m, err := s.Mark()
	testkit.Must(t, err)
	err = s.Sync(ctx)
	done, e := s.Reached(m)
	testkit.Must(t, e)
	if err == nil && !done {
		t.Error("Sync returned nil before the work was done")
	}
	if err == nil {
		t.Error("400 GiB were filled in a millisecond")
	}
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	testkit.Must(t, s.Sync(ctx))
	if done, err := s.Reached(m); !done || err != nil {
		t.Errorf("after Sync: reached %v, %v", done, err)
	}
	testkit.Must(t, d.Free(p))
}

// TestGPUManyGoroutines runs 64 goroutines on one device.
func TestGPUManyGoroutines(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			s, err := d.NewStream(driver.StreamOptions{Priority: g%3 - 1})
			if err != nil {
				t.Error(err)
				return
			}
			p, err := d.Alloc(1 << 20)
			if err != nil {
				t.Error(err)
				return
			}
			got := make([]byte, 1<<20)
			for round := range 10 {
				want := byte(g + round)
				for _, err := range []error{s.Fill(p, want, 1<<20), s.CopyOut(got, p)} {
					if err != nil {
						t.Error(err)
						return
					}
				}
				if got[0] != want || got[1<<20-1] != want {
					t.Errorf("goroutine %d: %d and %d came back, want %d", g, got[0], got[1<<20-1], want)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := d.Free(p); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestGPUWarmCallsAllocateNothing checks that warm calls make no heap allocation.
func TestGPUWarmCallsAllocateNothing(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	s := drivertest.NewStream(t, d)
	p := drivertest.Alloc(t, d, 4096)
	if n := testing.AllocsPerRun(200, func() {
		testkit.Must(t, s.Fill(p, 1, 2048))
		testkit.Must(t, s.Copy(p+2048, p, 2048))
		m, err := s.Mark()
		testkit.Must(t, err)
		_, err = s.Reached(m)
		testkit.Must(t, err)
		testkit.Must(t, s.Sync(context.Background()))
	}); n >= 1 {
		t.Errorf("%v allocations for Fill, Copy, Mark, Reached and Sync", n)
	}
	testkit.Must(t, d.Free(p))
}

func BenchmarkGPUCalls(b *testing.B) {
	d := drivertest.OpenDevice(b, "cuda:0")
	s := drivertest.NewStream(b, d)
	p := drivertest.Alloc(b, d, 64<<20)
	vm, g := d.VirtualMemory(), d.Info().Granularity
	at, err := vm.Reserve(64 * g)
	testkit.Must(b, err)
	var pages []driver.Page
	for range 64 {
		page, err := vm.Create(g)
		testkit.Must(b, err)
		pages = append(pages, page)
	}
	for name, call := range map[string]func(){
		"Alloc+Free 2 MiB": func() { q, err := d.Alloc(2 << 20); testkit.Must(b, err); testkit.Must(b, d.Free(q)) },
		"Fill":             func() { testkit.Must(b, s.Fill(p, 1, 256)) },
		"Mark, no work":    func() { _, err := s.Mark(); testkit.Must(b, err) },
		"Fill+Mark+Reached": func() {
			testkit.Must(b, s.Fill(p, 1, 256))
			m, err := s.Mark()
			testkit.Must(b, err)
			_, err = s.Reached(m)
			testkit.Must(b, err)
		},
		"Fill+Sync": func() {
			testkit.Must(b, s.Fill(p, 1, 256))
			testkit.Must(b, s.Sync(context.Background()))
		},
		"Fill+Sync ctx":        func() { testkit.Must(b, s.Fill(p, 1, 256)); testkit.Must(b, s.Sync(b.Context())) },
		"Fill 64 MiB+Sync ctx": func() { testkit.Must(b, s.Fill(p, 1, 64<<20)); testkit.Must(b, s.Sync(b.Context())) },
		"Fill 64 MiB+Sync": func() {
			testkit.Must(b, s.Fill(p, 1, 64<<20))
			testkit.Must(b, s.Sync(context.Background()))
		},
		fmt.Sprintf("Map+Unmap %d pages", len(pages)): func() {
			testkit.Must(b, vm.Map(at, pages...))
			testkit.Must(b, vm.Unmap(at, 64*g))
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
			testkit.Must(b, s.Sync(context.Background()))
		})
	}
}
