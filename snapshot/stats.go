package snapshot

import (
	"fmt"

	"github.com/ashlar-go/ashlar/pickle"
)

// stats reads memory_stats, which Ashlar writes: numbers by name.
func (im *importer) stats(v pickle.Value) (map[string]int64, error) {
	const place = "memory_stats"
	pairs, err := im.dict(place, v)
	if err != nil {
		return nil, err
	}
	all := make(map[string]int64, len(pairs)/2)
	r := reading{im: im, drops: true}
	r.fields("statistic ", pairs, func(key string, v pickle.Value) bool {
		n, bad := integer(im.doc, key, v)
		r.note(bad)
		all[key] = n
		return true
	})
	if r.bad != nil {
		return nil, r.bad.at(place)
	}
	return all, nil
}

// limitsKey is a key that only Ashlar writes.
const limitsKey = "memory_limits"

// memoryLimits reads memory_limits: for each device the bytes that its allocator may reserve, 0 without a limit.
func (im *importer) memoryLimits(v pickle.Value) ([]int64, error) {
	items, err := im.list("", limitsKey, v)
	if err != nil {
		return nil, err
	}
	limits := make([]int64, len(items))
	for device, item := range items {
		n, bad := integer(im.doc, limitsKey, item)
		if bad == nil && n < 0 {
			bad = &problem{field: limitsKey, reason: fmt.Sprintf("want at least 0, got %d", n)}
		}
		if bad != nil {
			return nil, bad.at(fmt.Sprintf("device %d", device))
		}
		limits[device] = n
	}
	return limits, nil
}
