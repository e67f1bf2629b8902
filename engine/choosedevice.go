package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/driver"
)

type opener func(spec string) (driver.Device, error)

// choose opens the default device: the GPU of the local rank or, without ranks, the one with the most free memory.
// Without GPUs it is the host.
func choose(
	ctx context.Context, rank *collective.Config, gpus driver.Driver, open opener,
) (driver.Device, string, error) {
	var listed []driver.Listing
	if gpus != nil {
		var err error
		listed, err = gpus.Devices()
		if err != nil && !errors.Is(err, driver.ErrAbsent) && !errors.Is(err, driver.ErrUnsupported) {
			return nil, "", fmt.Errorf("engine: %w", err)
		}
	}
	spec := "host"
	switch n := len(listed); {
	case n == 0:
	case rank == nil && n > 1:
		return mostFree(ctx, listed, open)
	case rank == nil:
		spec = listed[0].Spec
	case rank.LocalRank < 0 || rank.LocalRank >= n:
		return nil, "", fmt.Errorf("engine: local rank %d on a machine with %d CUDA devices: name the rank's device",
			rank.LocalRank, n)
	default:
		spec = listed[rank.LocalRank].Spec
	}
	dev, err := open(spec)
	if err != nil {
		return nil, "", fmt.Errorf("engine: open %s: %w", spec, err)
	}
	return dev, spec, nil
}

// mostFree opens all devices, and keeps the first of those with the most free memory. It skips devices that cannot be
// opened; if none can, the error says why for each.
func mostFree(ctx context.Context, listed []driver.Listing, open opener) (best driver.Device, spec string, err error) {
	var most int64
	var errs []error
	for _, l := range listed {
		if ctx.Err() != nil {
			break
		}
		dev, free, err := openMeasured(l.Spec, open)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("engine: open %s: %w", l.Spec, err))
		case best == nil:
			best, spec, most = dev, l.Spec, free
		case free > most:
			best.Close()
			best, spec, most = dev, l.Spec, free
		default:
			dev.Close()
		}
	}
	switch {
	case ctx.Err() == nil && best != nil:
		return best, spec, nil
	case best != nil:
		errs = append(errs, best.Close())
	}
	if ctx.Err() != nil {
		errs = append(errs, fmt.Errorf("engine: open: %w", context.Cause(ctx)))
	}
	return nil, "", errors.Join(errs...)
}

// openMeasured opens a device and returns its free bytes.
func openMeasured(spec string, open opener) (driver.Device, int64, error) {
	dev, err := open(spec)
	if err != nil {
		return nil, 0, err
	}
	free, _, err := dev.Available()
	if err != nil {
		return nil, 0, errors.Join(err, dev.Close())
	}
	return dev, free, nil
}
