//go:build !linux

package host

import "github.com/ashlar-go/ashlar/driver"

// Sharing returns nil: only on Linux can other processes map this package's memory.
func (d *device) Sharing() driver.Sharing { return nil }
