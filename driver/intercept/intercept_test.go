package intercept_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// openWrapped opens a device and wraps it with a hook that fails the test if Kinds does not list what it gets.
func openWrapped(t testing.TB, spec string) driver.Device {
	t.Helper()
	inner, err := driver.Open(spec)
	testkit.Must(t, err)
	kinds := intercept.Kinds()
	return intercept.Wrap(inner, func(c intercept.Call, next func() error) error {
		if !slices.Contains(kinds, c.Kind) {
			t.Errorf("a hook got %q, which Kinds does not list", c.Kind)
		}
		return next()
	})
}

// A wrapped device is as good as the inner one.
func TestDriver(t *testing.T) {
	for _, spec := range []string{"host:total=64MiB", "sim:total=64MiB"} {
		t.Run(spec, func(t *testing.T) {
			drivertest.Run(t, func(t testing.TB) driver.Device { return openWrapped(t, spec) })
		})
	}
}

// Wrapped devices are each other's peers.
func TestPeers(t *testing.T) {
	drivertest.RunPeers(t, func(t testing.TB) (a, b driver.Device) {
		return openWrapped(t, "host:total=64MiB"), openWrapped(t, "host:total=64MiB,ordinal=1")
	})
}

// A hook that fails a call after it succeeded leaves nothing open, and hooks see streams of the inner device.
func TestHookErrorClosesWhatWasMade(t *testing.T) {
	inner := drivertest.OpenSim(t, 0)
	refused := errors.New("refused")
	d := intercept.Wrap(inner, func(c intercept.Call, next func() error) error {
		if c.Stream != nil && c.Stream != inner.DefaultStream() {
			t.Errorf("%s: the hook got a stream that is not the inner device's", c.Kind)
		}
		if err := next(); err != nil || c.Kind != intercept.NewStream {
			return err
		}
		return refused
	})
	if s, err := d.NewStream(driver.StreamOptions{}); s != nil || err != refused {
		t.Errorf("NewStream: %v, %v, want no stream and the hook's error", s, err)
	}
	if err := d.DefaultStream().Fill(0, 0, 0); err != nil {
		t.Error(err)
	}
	if leaks := inner.Leaks(); !leaks.Empty() {
		t.Errorf("left open: %v", leaks)
	}
}

// lacking is a device with no optional ability at all.
type lacking struct{ driver.Device }

func (lacking) DefaultStream() driver.Stream        { return nil }
func (lacking) VirtualMemory() driver.VirtualMemory { return nil }
func (lacking) Kernels() driver.Kernels             { return nil }
func (lacking) Pinned() driver.Pinned               { return nil }
func (lacking) Timing() driver.Timing               { return nil }
func (lacking) Graphs() driver.Graphs               { return nil }
func (lacking) Peers() driver.Peers                 { return nil }
func (lacking) Sharing() driver.Sharing             { return nil }
func (lacking) Visible() driver.Visible             { return nil }

// Abilities that the inner device lacks are nil, not interfaces around nothing.
func TestAWrapperInventsNoAbility(t *testing.T) {
	d := intercept.Wrap(lacking{}, nil)
	if d.VirtualMemory() != nil || d.Kernels() != nil || d.Pinned() != nil || d.Timing() != nil ||
		d.Graphs() != nil || d.Peers() != nil || d.Sharing() != nil || d.Visible() != nil {
		t.Error("an ability that the inner device lacks is not nil")
	}
}
