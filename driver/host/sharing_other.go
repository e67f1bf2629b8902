//go:build !linux

package host

import "github.com/ashlar-go/ashlar/driver"

// Sharing is nil: memory apart from addresses, which other processes could map, is had on Linux only.
func (d *device) Sharing() driver.Sharing { return nil }
