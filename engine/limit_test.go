package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// The limit bounds the memory taken from the device, for every allocator. Caches cannot reuse blocks of growing sizes
// that are freed one after another: the allocator frees its cache, or compacts, before it returns an error.
func TestDefect16_TheLimitBoundsWhatTheDeviceGivesUp(t *testing.T) {
	const limit = 64 << 20
	for allocator, fits := range map[string]int64{ // the largest block that there is room for at least
		"":                                   limit,
		"caching:expandable_segments:True":   60 << 20, // whole pages, of 20 MiB
		"caching:max_split_size_mb:32":       limit,
		"bfc":                                limit,
		"bfc:virtual=on":                     limit,
		"bfc:growth=off":                     limit,
		"paged":                              limit,
		"paged:aliases=off":                  limit,
		"direct":                             limit,
		"direct:session=on":                  limit,
		"arena":                              62 << 20, // beside it lies what moving needs
		"arena:page=2MiB":                    limit,
		"arena:size=40MiB,compact=off":       40 << 20,
		"caching:roundup_power2_divisions:4": limit,
	} {
		t.Run(allocator, func(t *testing.T) {
			inner, most := drivertest.OpenSim(t, 4<<30), int64(0) // bytes that the device gave up
			dev := intercept.Wrap(inner, func(c intercept.Call, next func() error) error {
				err := next()
				if c.Kind == intercept.Alloc || c.Kind == intercept.Create {
					free, total, unknown := inner.Available()
					testkit.Must(t, unknown)
					most = max(most, total-free)
				}
				return err
			})
			e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{
				Spec:        prepare(t, func() (driver.Device, error) { return dev, nil }),
				MemoryLimit: limit, Allocator: allocator,
			}}})
			testkit.Must(t, err)
			s, err := e.NewSession()
			testkit.Must(t, err)
			for size := int64(1 << 20); size <= fits; size += 1 << 20 {
				x, err := s.Place().Alloc(size)
				if err != nil {
					t.Fatalf("%d MiB, with nothing else allocated: %v", size>>20, err)
				}
				x.Release()
			}
			keep, err := s.Place().Alloc(fits / 2)
			testkit.Must(t, err)
			_, err = s.Place().Alloc(fits)
			var oom *mem.OutOfMemory
			whose := "the engine's MemoryLimit of 64.00 MiB was reached, the GPU had 3."
			if strings.Contains(allocator, "size=40MiB") {
				whose = "your own limit of 40.00 MiB was reached, the GPU had 3." // there is room for a larger arena
			}
			if !errors.Is(err, mem.ErrNoMemory) || !errors.As(err, &oom) || !strings.Contains(err.Error(), whose) {
				t.Errorf("%d MiB beside %d: %v; want %q in it", fits>>20, fits>>21, err, whose)
			}
			if oom != nil && (oom.Allowed == 0 || oom.Allowed > limit || oom.Free < 3<<30) {
				t.Errorf("%d bytes allowed, and %d free on the device", oom.Allowed, oom.Free)
			}
			keep.Release()
			if most > limit {
				t.Errorf("the device gave up %d bytes, under a limit of %d", most, limit)
			}
			if got, ok := mem.LimitOf(e.Allocator(0)); !ok || got > limit {
				t.Errorf("LimitOf is %d, %v", got, ok)
			}
			if info, err := e.DeviceInfo(0); err != nil || info.Limit != limit || info.Reserved > limit {
				t.Errorf("%+v, %v", info, err)
			}
			testkit.Must(t, s.Close())
			testkit.Must(t, e.Close(context.Background()))
			wellLeft(t, inner)
		})
	}
}
