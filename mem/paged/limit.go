package paged

import (
	"fmt"
	"math"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// The limit is the lower of Config.Limit and the memory fraction. When it is lowered at run time, more pages may exist
// than it allows. Until enough pages are freed, no page is created, requests do not bring more pages into use than the
// limit allows, and each free drops idle pages.

const noLimit = math.MaxInt64 // granules

// setLimit computes the limit in granules. The caller holds mu.
func (a *Allocator) setLimit(bytes int64, fraction float64) {
	total := a.dev.Info().TotalMemory
	a.cfg.Limit, a.fraction = bytes, fraction
	a.limit = noLimit
	if bytes > 0 {
		a.limit = bytes / a.granule
	}
	if fraction < 1 {
		a.limit = min(a.limit, int64(fraction*float64(total))/a.granule)
	}
	if a.maxGranules = a.limit; a.limit == noLimit {
		a.maxGranules = total / a.granule
	}
}

// SetLimit replaces Config.Limit, in bytes; 0 is no limit. Live blocks stay, even beyond a lower limit. Idle pages
// beyond it are freed once the work queued on them is done, except pages that a capturing stream used. Requests beyond
// the limit fail until enough blocks are freed. The automatic page size (Config.Page) follows the limit; existing pages
// keep their size.
//
// SetLimit returns an error and changes nothing if Config.Limit does not permit the value. It also returns the driver's
// error if freeing pages fails; then the new limit is in force. SetLimit is safe for concurrent use.
func (a *Allocator) SetLimit(bytes int64) error {
	if bytes < 0 || bytes > 0 && bytes < a.granule {
		return fmt.Errorf("paged: SetLimit: limit is %s: want 0 for none, or at least the device's granularity, %s",
			bytesize.Exact(bytes), bytesize.Exact(a.granule))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.applyLimit(bytes, a.fraction)
}

// MemoryFraction returns the fraction of the device's memory that may be reserved, in [0, 1]; 1 is no limit.
func (a *Allocator) MemoryFraction() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fraction
}

// SetMemoryFraction limits the reserved memory to a fraction of the device's memory, in [0, 1]; 1 is no limit. The
// lower of this and Config.Limit holds. It takes effect and fails as SetLimit does, and is safe for concurrent use.
func (a *Allocator) SetMemoryFraction(fraction float64) error {
	if !(fraction >= 0 && fraction <= 1) {
		return fmt.Errorf("paged: memory fraction %v: want it in [0, 1]", fraction)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.applyLimit(a.cfg.Limit, fraction)
}

// applyLimit sets the limit and drops the idle pages beyond it. The caller holds mu.
func (a *Allocator) applyLimit(bytes int64, fraction float64) error {
	a.flushCaches()
	a.setLimit(bytes, fraction)
	a.surplus = max(0, a.created-a.maxGranules)
	a.retryDrops()
	defer a.verify()
	for a.created > a.maxGranules {
		i := a.oldestIdle(&a.main, a.capturing())
		if i == 0 {
			return a.reclaimPools()
		}
		if _, err := a.drop(i, true); err != nil {
			return err
		}
	}
	return nil
}

// Limit returns the largest number of bytes that Config.Limit and the memory fraction permit to be reserved, in whole
// granules; 0 is no limit. If they permit nothing, Limit returns 1.
func (a *Allocator) Limit() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allowed()
}

// allowed is Limit for a caller that holds mu.
func (a *Allocator) allowed() int64 {
	if a.limit == noLimit {
		return 0
	}
	return max(a.limit*a.granule, 1)
}

// higherLimit names the settings that would permit this many granules.
func (a *Allocator) higherLimit(granules int64) string {
	var settings []string
	bytes, total := granules*a.granule, a.dev.Info().TotalMemory
	if a.cfg.Limit > 0 && bytes > a.cfg.Limit {
		settings = append(settings, "limit="+bytesize.Exact(bytes))
	}
	if part := float64(bytes) / float64(total); part > a.fraction {
		settings = append(settings, fmt.Sprintf("a memory fraction of %v", min(1, math.Ceil(part*1e4)/1e4)))
	}
	return strings.Join(settings, " and ")
}

// limited reports whether there is a limit.
func (a *Allocator) limited() bool { return a.limit != noLimit }

// CacheInfo returns the bytes of idle pages, which EmptyCache would free, and the largest request that they could
// serve. One request can use all idle pages, wherever they are, within the limit. CacheInfo empties the per-processor
// caches. It takes no snapshot.
func (a *Allocator) CacheInfo() (cachedAndFree, largest int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushCaches()
	idle := (a.created - a.used) * a.granule
	return idle, min(idle, a.room())
}

// LargestRequest returns the size in bytes of the largest request that can be served, from idle pages and new ones and
// within the limit, if the device has this many bytes free. During a capture the largest request may be smaller.
func (a *Allocator) LargestRequest(free int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushCaches()
	return min((a.created-a.used+max(free, 0)/a.granule)*a.granule, a.room())
}

// room returns how many more bytes may be in use under the limit.
func (a *Allocator) room() int64 { return max(0, a.maxGranules-a.used) * a.granule }
