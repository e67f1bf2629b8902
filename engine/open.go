package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/timeline"
)

// Open opens an engine. If a step fails, the devices opened before it are closed again. The context bounds Open alone:
// it is checked between devices, and while ranks connect.
func Open(ctx context.Context, c Config) (*Engine, error) {
	e := &Engine{config: c, closeToken: make(chan struct{}, 1)}
	e.config.Devices = slices.Clone(c.Devices)
	e.workers = newWorkers(e)
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// keptStreams is the maximum number of streams of closed sessions that a device keeps. A new stream gets a new number,
// and tables indexed by stream number grow with it.
const keptStreams = 1024

func (e *Engine) start(ctx context.Context) error {
	c := e.config
	if n := len(c.Devices); c.Distribution != nil && n > 1 {
		return fmt.Errorf("engine: %d devices and a distribution: a rank has one, so start a process for each", n)
	}
	if c.MaxEvents < 0 {
		return fmt.Errorf("engine: Config.MaxEvents is %d: want 0, which is %d, or a positive number", c.MaxEvents,
			timeline.DefaultMax)
	}
	devices := c.Devices
	if len(devices) == 0 {
		devices = []DeviceConfig{{}}
	}
	for _, d := range devices {
		if ctx.Err() != nil {
			return fmt.Errorf("engine: open %s: %w", cmp.Or(d.Spec, "a device"), context.Cause(ctx))
		}
		dev, spec, err := find(ctx, d.Spec, c.Distribution)
		if err != nil {
			return err
		}
		d.Spec = spec
		if err := e.add(dev, d); err != nil {
			return err
		}
	}
	if err := e.enablePeers(); err != nil {
		return err
	}
	if c.EventLevel > 0 {
		if err := e.alignEvents(ctx); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
	}
	if c.Distribution != nil {
		return e.join(ctx, *c.Distribution)
	}
	return nil
}

// find opens the device that a specification names, or, if it is empty, the default one.
func find(ctx context.Context, spec string, rank *collective.Config) (driver.Device, string, error) {
	if spec == "" {
		return choose(ctx, rank, driver.Lookup("cuda"), driver.Open)
	}
	dev, err := driver.Open(spec)
	if err != nil {
		return nil, "", fmt.Errorf("engine: open %s: %w", spec, err)
	}
	return dev, spec, nil
}

// add adds an open device to the engine, or closes it on failure.
func (e *Engine) add(dev driver.Device, c DeviceConfig) error {
	d, err := e.newDevice(dev, c)
	if err != nil {
		return errors.Join(fmt.Errorf("engine: open %s: %w", c.Spec, err), dev.Close())
	}
	d.index, d.spec = len(e.devices), c.Spec
	d.recorder = timeline.New(dev, timeline.Options{
		Level: math.MaxInt, // sessions choose what they record
		Index: d.index, Memory: d.allocator.liveBytes, Max: e.config.MaxEvents,
	})
	d.tasks = d.recorder.Lane(tasksLane)
	e.devices = append(e.devices, d)
	return nil
}

// newDevice makes a device of the engine: its allocators, backend and streams. On failure the caller closes dev.
func (e *Engine) newDevice(dev driver.Device, c DeviceConfig) (*device, error) {
	if c.MemoryLimit < 0 {
		return nil, fmt.Errorf("DeviceConfig.MemoryLimit is %d: want 0 for no limit, or a positive number",
			c.MemoryLimit)
	}
	o := e.config.Compute
	if c.Allocator != "" {
		o.Allocator = c.Allocator
	}
	d := &device{device: dev, memory: dev, limit: c.MemoryLimit}
	below := o.Memory
	o.Memory = func(dev driver.Device) driver.Device {
		if below != nil {
			d.memory = below(dev)
		}
		if e.config.Tenants {
			d.users = layer.NewTenantDevice(d.memory)
			d.memory = d.users
		}
		if c.MemoryLimit > 0 {
			d.memory = layer.NewLimitedDevice(d.memory, c.MemoryLimit, "the engine's MemoryLimit")
		}
		return d.memory
	}
	var err error
	if d.inner, err = o.On(dev); err != nil {
		return nil, err
	}
	d.allocator = newSessionAllocator(nil)
	top := d.inner.Allocator()
	if d.users != nil {
		if top, err = d.divide(top); err != nil {
			return nil, errors.Join(err, d.inner.Close())
		}
	}
	d.caches, top = newCaches(top, d.memory, d.allocator)
	if c.Wrap != nil {
		below := top
		top = c.Wrap(below)
		if err := reaches(top, below); err != nil {
			return nil, errors.Join(err, d.inner.Close())
		}
	}
	d.allocator.below = top
	d.place = tensor.NewPlace(tensor.Config{
		Device: dev, Allocator: d.allocator, Backend: d.inner.Backend(), Sites: o.Sites,
		SitesBy: "engine.Config{Compute: compute.Options{Sites: true}}",
	})
	d.streams = driver.NewStreamPool(dev, driver.StreamOptions{})
	d.streams.Keep(keptStreams)
	return d, nil
}

// reaches fails unless below is a layer of top.
func reaches(top, below mem.Allocator) error {
	if top != nil {
		for layer := range mem.Layers(top) {
			if layer == below {
				return nil
			}
		}
	}
	return fmt.Errorf("DeviceConfig.Wrap returned %T, which does not unwrap to what it was given", top)
}

// enablePeers lets devices of one driver access each other's memory where they can, also memory that their allocators
// map.
func (e *Engine) enablePeers() error {
	for _, d := range e.devices {
		for _, other := range e.devices {
			if d.device.Peers() != nil && d != other && d.kind() == other.kind() {
				if err := mem.EnablePeer(d.device, other.device, other.inner.Allocator()); err != nil &&
					!errors.Is(err, driver.ErrUnsupported) {
					return fmt.Errorf("engine: device %d using the memory of device %d: %w", d.index, other.index, err)
				}
			}
		}
	}
	return nil
}

func (d *device) kind() string { return d.device.Info().Driver }
