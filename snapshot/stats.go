package snapshot

import "github.com/ashlar-go/ashlar/pickle"

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
