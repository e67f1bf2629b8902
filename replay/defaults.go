package replay

import (
	"fmt"
	"reflect"
)

// Values that DefaultSpecs tries; the best becomes a row.
var (
	triedDivisions   = []string{"2", "4", "8", "16"}
	triedSplitLimits = []string{"32", "64", "128", "256", "512", "1024"} // MiB
)

// DefaultSpecs returns the rows of a comparison without CompareOptions.Specs: the recorded settings; PyTorch's
// defaults, if they differ; expandable segments; the best of several values of the size rounding and of the split
// limit, tried on a simulated device: the value that reserves the least or, with opts.Smallest, completes under the
// smallest limit; and, if there is a limit, garbage collection at 0.8 of it.
func DefaultSpecs(w *Work, opts CompareOptions) ([]string, error) {
	capacity, err := w.capacity(opts.Capacity)
	if err != nil {
		return nil, err
	}
	opts.Capacity = capacity
	specs := []string{AsRecorded}
	add := func(spec string) error {
		s, err := ParseSpec(spec, w.Recorded)
		if err != nil {
			return err
		}
		if s.config.PyTorchExact = w.Recorded.PyTorchExact; !reflect.DeepEqual(s.config, w.Recorded) {
			specs = append(specs, spec)
		}
		return nil
	}
	division, err := w.least(opts, "caching:roundup_power2_divisions:", triedDivisions)
	if err != nil {
		return nil, err
	}
	split, err := w.least(opts, "caching:max_split_size_mb:", triedSplitLimits)
	if err != nil {
		return nil, err
	}
	tried := []string{"caching:", "caching:expandable_segments:True", division, split}
	if opts.Limit > 0 {
		tried = append(tried, "caching:garbage_collection_threshold:0.8")
	}
	for _, spec := range tried {
		if err := add(spec); err != nil {
			return nil, err
		}
	}
	return specs, nil
}

// least returns the best spec: prefix with one of the values.
func (w *Work) least(opts CompareOptions, prefix string, values []string) (string, error) {
	if opts.Smallest {
		return w.leastLimit(opts, prefix, values)
	}
	rows := make([]Row, len(values))
	err := parallel(len(values), 0, func(i int) error {
		s, err := ParseSpec(prefix+values[i], w.Recorded)
		if err != nil {
			return err
		}
		run := simulation{work: w, spec: &s, limit: opts.Limit, capacity: opts.Capacity}
		res, err := run.do()
		if err != nil {
			return fmt.Errorf("%s: %w", s.Text, err)
		}
		rows[i].fill(&res)
		return nil
	})
	best := 0
	for i := range rows {
		a, b := &rows[i], &rows[best]
		if a.Completed() != b.Completed() {
			if a.Completed() {
				best = i
			}
		} else if a.Completed() && better(a, b, false) || !a.Completed() && a.Ops > b.Ops {
			best = i
		}
	}
	return prefix + values[best], err
}

// leastLimit returns the spec that completes under the smallest limit. A search takes many runs, so it only searches
// specs that complete below the best limit so far.
func (w *Work) leastLimit(opts CompareOptions, prefix string, values []string) (string, error) {
	best, least := prefix+values[0], int64(0)
	for _, value := range values {
		s, err := ParseSpec(prefix+value, w.Recorded)
		if err != nil {
			return "", err
		}
		if least > 0 {
			run := simulation{work: w, spec: &s, limit: least - limitStep, capacity: opts.Capacity}
			res, err := run.do()
			if err != nil {
				return "", fmt.Errorf("%s: %w", s.Text, err)
			}
			if res.NumOOMs > 0 {
				continue
			}
		}
		search := limitSearch{work: w, spec: &s, capacity: opts.Capacity, meter: newMeter(nil, 1)}
		found, err := search.do()
		if err != nil {
			return "", err
		}
		if limit := found.Limit; limit > 0 && (least == 0 || limit < least) {
			best, least = s.Text, limit
		}
	}
	return best, nil
}
