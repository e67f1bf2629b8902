package mem_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
)

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
