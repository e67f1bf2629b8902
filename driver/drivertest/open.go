package drivertest

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// OpenDevice opens a device for a test (see driver.Open), which closes it at its end.
func OpenDevice(t testing.TB, spec string) driver.Device {
	t.Helper()
	dev, err := driver.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// OpenSim opens a simulated device for a test, with total bytes of memory or, if total is 0, sim's default. At the end
// the test fails if work raced, and the device is closed. Its reports name lines of the test.
func OpenSim(t testing.TB, total int64) *sim.Device {
	t.Helper()
	dev := sim.New(sim.Options{Total: total, CallSites: true})
	t.Cleanup(func() {
		for _, report := range dev.Reports() {
			t.Error(report)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// NewStream makes a stream without options. It ends the test if the device fails.
func NewStream(t testing.TB, d driver.Device) driver.Stream {
	t.Helper()
	s, err := d.NewStream(driver.StreamOptions{})
	testkit.Must(t, err)
	return s
}

// Alloc allocates device memory, in bytes. It ends the test if the device fails.
func Alloc(t testing.TB, d driver.Device, size int64) driver.Pointer {
	t.Helper()
	p, err := d.Alloc(size)
	testkit.Must(t, err)
	return p
}
