package engine

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A TenantConfig describes a tenant. Sizes are bytes of each device.
type TenantConfig struct {
	Name     string // for errors and metrics
	Reserved int64  // that the tenant can always allocate
	Limit    int64  // the maximum that it can have; 0 is all that tenants share
}

// A Tenant is a customer of an engine: its sessions cannot read what those of others wrote, and have a quota of each
// device's memory. It is safe for concurrent use.
type Tenant struct {
	engine  *Engine
	name    string
	devices []*layer.Tenant // by the engine's number
	closed  bool            // guarded by Engine.mu
}

// NewTenant makes a tenant on all devices. It needs Config.Tenants. The error is a *layer.QuotaError if less than
// Reserved is left of a device's memory.
func (e *Engine) NewTenant(c TenantConfig) (*Tenant, error) {
	switch {
	case !e.config.Tenants:
		return nil, errors.New("engine: NewTenant of an engine without Config.Tenants")
	case c.Reserved < 0 || c.Limit < 0 || c.Limit > 0 && c.Limit < c.Reserved:
		return nil, fmt.Errorf("engine: tenant %q with %d bytes reserved of %d: want 0 <= Reserved <= Limit, or no Limit",
			c.Name, c.Reserved, c.Limit)
	}
	if err := e.checkOpen(); err != nil {
		return nil, err
	}
	t := &Tenant{engine: e, name: c.Name}
	for i, d := range e.devices {
		limit := c.Limit
		if limit == 0 {
			limit = max(d.tenantTotal(), c.Reserved)
		}
		part, err := d.quotas.Tenant(c.Name, c.Reserved, limit)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("engine: device %d: %w", i, err), t.Close())
		}
		t.devices = append(t.devices, part)
	}
	return t, nil
}

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

// On returns the tenant's part of a device: an allocator of its memory with its statistics, for metrics.AddTenant. It
// panics if the engine has no such device.
func (t *Tenant) On(device int) *layer.Tenant {
	t.engine.at("Tenant.On", device)
	return t.devices[device]
}

// NewSession opens a session of the tenant: see Engine.NewSession. All memory of the session is the tenant's: that of
// tensors, scratch memory of computations, and reserved caches. Tensors that Keep took out stay the tenant's until they
// are released. A tensor that the program makes at the place of another session is memory of that session's tenant.
//
// Streams that the program makes must not be shared by tenants: memory of such a stream belongs to the tenant of the
// session that used it first, as long as that session is open. Memory of the default stream is the engine's own.
func (t *Tenant) NewSession(devices ...int) (*Session, error) {
	return t.engine.newSession(callsite.Here(), devices, false, t)
}

// Close ends the tenant and its reservations. It is an error if a session of the tenant is open, or memory of it is
// allocated, which kept tensors have; then the tenant stays. After the engine's Close it does nothing. Closing twice is
// a no-op.
func (t *Tenant) Close() error {
	e := t.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || t.closed {
		return nil
	}
	for _, s := range e.sessions {
		if s.tenant == t {
			return fmt.Errorf("engine: Close of tenant %s: the session opened at %v is open", t.name, s.opened)
		}
	}
	for i, part := range t.devices {
		if n := part.Live(); n > 0 {
			return fmt.Errorf("engine: Close of tenant %s: %s of device %d are allocated: release its tensors", t.name,
				bytesize.Format(n), i)
		}
	}
	t.closed = true
	var errs []error
	for _, part := range t.devices {
		errs = append(errs, part.Leave())
	}
	return errors.Join(errs...)
}

// tenantTotal returns the bytes that the tenants of a device share.
func (d *device) tenantTotal() int64 {
	if d.limit > 0 {
		return d.limit
	}
	return d.device.Info().TotalMemory
}

// divide puts the layer of tenants above a device's allocator. Requests of streams that belong to no tenant's session
// are those of a tenant of the engine itself.
func (d *device) divide(below mem.Allocator) (mem.Allocator, error) {
	d.quotas = layer.NewIsolatedQuotas(below, d.users, d.tenantTotal())
	own, err := d.quotas.Tenant("the engine's own", 0, d.tenantTotal())
	if err != nil {
		return nil, err
	}
	l := d.allocator
	return d.quotas.Route(func(s driver.Stream) *layer.Tenant {
		if r := l.stream(s.ID()).routeFor(s); r != nil && r.usage != nil && r.usage.tenant != nil {
			return r.usage.tenant
		}
		return own
	}), nil
}
