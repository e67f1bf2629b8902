package mem_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A device may be wrapped, as one with a limit is.
func TestPeersOfDevicesWithALimit(t *testing.T) {
	d, owner := drivertest.OpenDevice(t, "host:total=64MiB"), drivertest.OpenDevice(t, "host:total=64MiB")
	cfg, _, err := caching.ParseConfig("expandable_segments:True")
	if err != nil {
		t.Fatal(err)
	}
	limited := layer.NewLimitedDevice(owner, 32<<20, "a test")
	a, err := caching.New(limited, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.EnablePeer(layer.NewLimitedDevice(d, 32<<20, "a test"), limited, a); err != nil {
		t.Fatal(err)
	}
	b, err := a.Alloc(owner.DefaultStream(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.DefaultStream().Fill(b.Ptr, 1, 1000); err != nil {
		t.Errorf("work of the other device: %v", err)
	}
	if err := d.DefaultStream().Sync(t.Context()); err != nil {
		t.Error(err)
	}
	a.Free(b)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// linked is a device with peers, none of which it reaches.
type linked struct{ driver.Device }

type unreachable struct{ driver.Peers }

func (linked) Peers() driver.Peers { return unreachable{} }

func (unreachable) Enable(driver.Device) error            { return nil }
func (unreachable) CanAccess(driver.Device) (bool, error) { return false, nil }

func TestDefect12_DevicesThatAreNotLinkedSaySo(t *testing.T) {
	d, other := drivertest.OpenSim(t, 1<<30), drivertest.OpenSim(t, 1<<30)
	cfg, _, err := caching.ParseConfig("expandable_segments:True")
	if err != nil {
		t.Fatal(err)
	}
	for _, owner := range []driver.Device{other, linked{other}} {
		a, err := caching.New(owner, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, dev := range []driver.Device{d, linked{d}} {
			if err := mem.EnablePeer(dev, owner, layer.NewCounter(a)); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("EnablePeer = %v, want ErrUnsupported", err)
			}
		}
		b, err := a.Alloc(owner.DefaultStream(), 1<<20) // no peer was added
		if err != nil {
			t.Fatal(err)
		}
		a.Free(b)
		if err := a.AddPeer(owner); err != nil {
			t.Errorf("the device itself: %v", err)
		}
	}
}
