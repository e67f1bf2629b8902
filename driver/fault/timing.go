package fault

import (
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// timing wraps the inner device's.
type timing struct {
	d     *Device
	inner driver.Timing
}

func (t timing) Stamp(s driver.Stream) (driver.Stamp, error) {
	if err := t.d.call(Stamp); err != nil {
		return driver.Stamp{}, err
	}
	return t.inner.Stamp(t.d.inside(s))
}

func (t timing) Elapsed(from, to driver.Stamp) (time.Duration, error) {
	if err := t.d.call(Elapsed); err != nil {
		return 0, err
	}
	return t.inner.Elapsed(from, to)
}

// Discard that fails leaves the stamp as it is.
func (t timing) Discard(s driver.Stamp) error {
	if err := t.d.call(Discard); err != nil {
		return err
	}
	return t.inner.Discard(s)
}
