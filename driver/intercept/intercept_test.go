package intercept_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/intercept"
)

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
