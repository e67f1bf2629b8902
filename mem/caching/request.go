package caching

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// A request is an allocation on its way through the slow path.
type request struct {
	requestOptions
	pool       *shardPool
	pinned     *privatePool // that outlives the request: not that of a borrowed block
	requested  int64        // what the caller asked for
	size       int64        // rounded
	segment    int64        // what the driver would be asked for
	expandable bool
	found      blockRef // taken out of its free set
	limited    bool     // the limit refused it last
	rejected   bool     // by the limit, under ThrowOnOOM
	addresses  int64    // bytes of an expandable segment, if it is larger than that
	class      string   // of its stream, if those addresses are that class's
	err        error    // what the driver said last; nil for a refusal by the limit or for want of addresses
}

// A requestOptions is what a request asks for besides its stream and size.
type requestOptions struct {
	to        *privatePool // where it has to go; nil: to the pool that is current on its stream
	noRetry   bool         // fail rather than wait, give memory back or ask the callbacks
	tentative bool         // a refusal is not counted, reported or explained
	key       any          // mem.AllocOptions.Key
}

// AllocWith is Alloc with wishes: see mem.AllocOptions. NoRetry leaves out what waits, gives cached memory back or calls
// those of OnLowMemory; observers of out-of-memory are told as ever. Such a request takes Allocator.mu. Key is for scopes of
// pools: see Pool.BeginKey.
func (a *Allocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	if size <= 0 || s == nil || !o.NoRetry && !o.Tentative && o.Key == nil {
		return a.Alloc(s, size)
	}
	if !o.NoRetry {
		if b, ok := a.allocWarm(s, size); ok {
			return b, nil
		}
	}
	poolscope.CheckKey("caching: AllocWith", o.Key)
	return a.allocSlow(s, size, requestOptions{noRetry: o.NoRetry, tentative: o.Tentative, key: o.Key})
}

// refusal is the error of a tentative request.
func refusal(size int64) error {
	return fmt.Errorf("caching: no room for %s: %w", mem.FormatSize(size), mem.ErrNoMemory)
}

// pinPool decides which pool serves a request, which that pool outlives: locks may be let go of on its way. The caller
// holds mu and the shard.
func (a *Allocator) pinPool(r *request, sh *shard) error {
	p, err := a.poolFor(sh, r.size, &r.requestOptions)
	if err != nil {
		return err
	}
	r.pool, r.pinned = p, p.blockPool.owner
	r.expandable = a.cfg.ExpandableSegments && p.upstream() == nil
	if r.pinned != nil {
		r.pinned.requests++
	}
	return nil
}

// unpinPool undoes enter. The pool may have been released meanwhile, and have waited for this request to be forgotten.
func (a *Allocator) unpinPool(r *request) {
	pp := r.pinned
	if pp == nil {
		return
	}
	if pp.requests--; pp.useCount == 0 {
		a.lockShards()
		a.forget(pp)
		a.unlockShards()
	}
}
