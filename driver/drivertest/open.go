package drivertest

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
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
