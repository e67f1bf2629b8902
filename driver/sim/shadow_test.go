package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

func TestReportOnlyLetsRacesGoOn(t *testing.T) {
	b := newBench(t, Options{ReportOnly: true}, 2)
	b.ok(b.s[1].Fill(b.p, 1, 64))
	b.ok(b.s[0].Fill(b.p, 2, 64))
	got := make([]byte, 1)
	b.ok(b.s[0].CopyOut(got, b.p))
	if got[0] != 2 || len(b.Reports()) != 2 { // of the two writes, and of the read with the first
		t.Errorf("read %d, reports %v", got[0], b.Reports())
	}
}

func TestUncheckedFindsNoRacesButBadAddresses(t *testing.T) {
	b := newBench(t, Options{Unchecked: true}, 2)
	b.ok(b.write(b.s[1], 0))
	b.ok(b.write(b.s[0], 0))
	if err := b.write(b.s[0], 1<<20); !errors.Is(err, driver.ErrInvalid) || len(b.Reports()) != 1 {
		t.Errorf("a write past the end: %v, reports %v", err, b.Reports())
	}
}

func TestRacesAreOfMemoryNotOfAddresses(t *testing.T) {
	b := newBench(t, Options{}, 2)
	vm, size := b.VirtualMemory(), b.Info().Granularity
	p, err := vm.Reserve(2 * size)
	b.ok(err)
	page, err := vm.Create(size)
	b.ok(err)
	b.ok(vm.Map(p, page, page))
	b.ok(b.s[0].Fill(p+100, 1, 10))
	race := b.race(b.s[1].Fill(p+driver.Pointer(size)+105, 2, 10))
	if want := (driver.Range{Ptr: p + driver.Pointer(size) + 105, Size: 5}); race.Range != want {
		t.Errorf("they share %+v, want %+v", race.Range, want)
	}
	if err := b.s[0].Copy(p+105, p+driver.Pointer(size)+100, 10); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a copy onto itself under another address: %v", err)
	}
}

func TestUnmapMustComeAfterTheLastUse(t *testing.T) {
	b := newBench(t, Options{CallSites: true}, 2)
	vm, size := b.VirtualMemory(), b.Info().Granularity
	p, err := vm.Reserve(2 * size)
	b.ok(err)
	page, err := vm.Create(size)
	b.ok(err)
	b.ok(vm.Map(p, page))
	b.ok(vm.Map(p+driver.Pointer(size), page))
	b.ok(b.s[1].Fill(p, 1, 10))
	race := b.race(vm.Unmap(p, 2*size))
	if !race.Second.Host || race.Second.Call != CallUnmap || race.First.Call != CallFill {
		t.Errorf("%v", race)
	}
	for _, site := range []string{race.First.Site, race.Second.Site} {
		if !strings.Contains(site, "shadow_test.go:") {
			t.Errorf("site %q, want one in this file", site)
		}
	}
	b.ok(vm.Unmap(p+driver.Pointer(size), size)) // the use was not through this address
	b.ok(b.s[1].Sync(context.Background()))
	b.ok(vm.Unmap(p, size))
}

// takeTurns makes each of two streams wait for the other, and write.
func (b *bench) takeTurns() {
	b.ok(b.s[0].WaitFor(b.s[1], b.mark(b.s[1])))
	b.ok(b.write(b.s[0], 0))
	b.ok(b.s[1].WaitFor(b.s[0], b.mark(b.s[0])))
	b.ok(b.write(b.s[1], 0))
}

// TestClockVersionsAreForgotten keeps the detector's memory bounded in a program that synchronises.
func TestClockVersionsAreForgotten(t *testing.T) {
	b := newBench(t, Options{}, 2)
	for range 1000 {
		b.takeTurns()
		b.ok(b.s[1].Sync(context.Background()))
	}
	for _, tl := range b.timelines {
		if n := len(tl.versions); n > 4 {
			t.Errorf("stream %d keeps %d versions of its clock", tl.id, n)
		}
	}
	shadow := &b.allocs.find(uint64(b.p)).value.shadow
	if accesses := shadow.at(shadow.first()).value; shadow.n > 1 || len(accesses) > 1 {
		t.Errorf("the shadow of 64 bytes has %d cells, the first with %d accesses", shadow.n, len(accesses))
	}
	if got := b.Reports(); !slices.Equal(got, nil) {
		t.Errorf("reports %v", got)
	}
}

// A stream that the host has waited for keeps one version: a program that waits at its end and then rests holds no old
// ones.
func TestIdleStreamsKeepOneClock(t *testing.T) {
	for name, wait := range map[string]func(b *bench) error{
		"streams": func(b *bench) error {
			return errors.Join(b.s[0].Sync(context.Background()), b.s[1].Sync(context.Background()))
		},
		"device": func(b *bench) error { return b.Free(b.p) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{}, 2)
			for range 100 {
				b.takeTurns()
			}
			b.ok(wait(b))
			for _, tl := range b.timelines {
				kept := 0
				for _, v := range tl.versions[:cap(tl.versions)] {
					if v.clock != nil {
						kept++
					}
				}
				if kept > 1 {
					t.Errorf("stream %d keeps %d versions of its clock", tl.id, kept)
				}
			}
		})
	}
}
