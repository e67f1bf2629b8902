package pinned_test

import (
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
)

// A device is a simulated one that counts its calls. Tests can make its calls fail and hold its streams.
type device struct {
	*fault.Device
	sim *sim.Device
}

func newDevice() *device { return newDeviceOf(sim.Options{}) }

func newDeviceOf(o sim.Options) *device {
	inner := sim.New(o)
	return &device{fault.Wrap(inner), inner}
}

// failing makes only the calls of one kind fail from now on. It sets the counts to zero.
func (d *device) failing(kind intercept.Kind, code error) {
	d.SetRules(fault.Rule{Kind: kind, Code: code})
}

// healthy undoes failing.
func (d *device) healthy() { d.SetRules() }

func (d *device) stream(t *testing.T) driver.Stream {
	t.Helper()
	s := drivertest.NewStream(t, d)
	return s
}

// hold stops the work on s, and resume does it.
func (d *device) hold(s driver.Stream)   { d.sim.Hold(s.ID()) }
func (d *device) resume(s driver.Stream) { d.sim.Resume(s.ID()) }

// work queues something on s.
func (d *device) work(t *testing.T, s driver.Stream) {
	t.Helper()
	p, err := d.sim.Alloc(8)
	if err == nil {
		err = s.Fill(p, 1, 8)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (d *device) begin(t *testing.T, s driver.Stream) {
	t.Helper()
	if err := d.Graphs().Begin(s); err != nil {
		t.Fatal(err)
	}
}

func (d *device) end(t *testing.T, s driver.Stream) driver.Graph {
	t.Helper()
	g, err := d.Graphs().End(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// empty fails the test if the device still holds page-locked memory.
func (d *device) empty(t *testing.T) {
	t.Helper()
	if left := d.sim.Leaks().Pinned; len(left) > 0 {
		t.Errorf("the device is left with page-locked memory: %v bytes", left)
	}
}

// at returns the address of a slice.
func at(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
