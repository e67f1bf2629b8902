//go:build !linux && !darwin && !windows

package host

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
)

// On other systems Open fails with openPhysical's error, so that no device ever calls the rest.

func unsupported() error { return fmt.Errorf("%s: %w", runtime.GOOS, errors.ErrUnsupported) }

func totalMemory() (int64, error) { return 0, unsupported() }

func openPhysical(placement) (physical, error) { return nil, unsupported() }

func mapMemory(int64) (driver.Pointer, error) { return 0, unsupported() }

func unmapMemory(driver.Pointer, int64) error { return unsupported() }

func lockMemory([]byte) error { return unsupported() }

func unlockMemory([]byte) {}
