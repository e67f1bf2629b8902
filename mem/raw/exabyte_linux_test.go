package raw_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
)

// PyTorch refuses a request beyond 1 EiB before the allocator of the device sees it: it is not counted or observed.
func TestDefect15_RequestsBeyondAnExbibyteDoNotCount(t *testing.T) {
	open := map[string]func(driver.Device) (mem.Allocator, error){
		"direct":         func(d driver.Device) (mem.Allocator, error) { return direct.New(d, direct.Config{}), nil },
		"caching.native": func(d driver.Device) (mem.Allocator, error) { return caching.New(d, caching.Default()) },
	}
	for name, f := range mapping {
		open[name] = f
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			d := newHost(t)
			a, err := open(d)
			testkit.Must(t, err)
			heard := 0
			if o, ok := a.(interface {
				OnOutOfMemory(observer func(*mem.OutOfMemory))
			}); ok {
				o.OnOutOfMemory(func(*mem.OutOfMemory) { heard++ })
			}
			for i, size := range []int64{1<<60 + 1, 1<<62 + 1, 1 << 38} {
				_, err := a.Alloc(d.DefaultStream(), size)
				var oom *mem.OutOfMemory
				if !errors.As(err, &oom) || oom.TooLarge != (size > 1<<60) {
					t.Errorf("%d bytes: %v", size, err)
				}
				if n := a.(mem.StatsReporter).Stats().NumOOMs; n != int64(i/2) {
					t.Errorf("after %d bytes %d errors are counted", size, n)
				}
			}
			if _, ok := a.(*caching.Allocator); ok && heard != 1 {
				t.Errorf("observers heard of %d errors, want 1", heard)
			}
			testkit.Must(t, a.(interface{ Close() error }).Close())
		})
	}
}
