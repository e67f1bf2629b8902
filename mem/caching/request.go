package caching

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// A request is an allocation on the slow path.
type request struct {
	requestOptions
	pool       *shardPool
	pinned     *privatePool // the pool that must outlive the request; not the pool of a borrowed block
	requested  int64        // bytes requested
	size       int64        // rounded
	segment    int64        // bytes that the driver would be asked for
	expandable bool
	found      blockRef // removed from its free set
	limited    bool     // the last attempt failed because of the limit
	rejected   bool     // by the limit, under ThrowOnOOM
	addresses  int64    // size of an expandable segment that is too small for the request; 0: no such failure
	class      string   // the stream's reserve class, if that class set the addresses
	err        error    // the driver's last error; nil if the limit or the addresses were the cause
}

// requestOptions are the options of a request.
type requestOptions struct {
	to        *privatePool // the pool that must serve it; nil: the stream's current pool
	noRetry   bool         // fail rather than wait, release memory or call callbacks
	tentative bool         // do not count or report a failure
	key       any          // mem.AllocOptions.Key
}

// AllocWith is Alloc with options: see mem.AllocOptions. With NoRetry the request does not wait, release cached memory
// or call the callbacks of OnLowMemory; observers of out-of-memory errors are called as usual. Such a request takes
// Allocator.mu. Key selects pools: see Pool.BeginKey.
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

// refusal returns the error of a tentative request.
func refusal(size int64) error {
	return fmt.Errorf("caching: no room for %s: %w", mem.FormatSize(size), mem.ErrNoMemory)
}

// pinPool chooses the pool of a request, and keeps it alive until unpinPool: the locks may be released in between. The
// caller holds mu and the shard.
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

// unpinPool undoes pinPool. If the pool was released in the meantime, it is removed here.
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
