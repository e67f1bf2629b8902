package replay

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// tryRemedies makes a failure's estimates facts: the work is run again, on a simulated device, under each setting that
// an estimate proposes. A remedy that gets past the request stays, and is none any more; one that does not is left out,
// so that the analysis says what rows with such settings show.
func (c *comparer) tryRemedies(failure *OOM, s *Spec, limit int64) error {
	var oom *mem.OutOfMemory
	if failure == nil || !errors.As(failure.Err, &oom) {
		return nil
	}
	tried := *oom
	tried.Remedies = nil
	for _, r := range oom.Remedies {
		if r.Estimate {
			helps, err := c.helps(r.Name, failure.Op, s, limit)
			if err != nil {
				return err
			}
			if !helps {
				continue
			}
			r.Estimate = false
			r.Reason += "; a replay with it got past this request"
		}
		tried.Remedies = append(tried.Remedies, r)
	}
	failure.Err = &tried
	return nil
}

// helps reports whether a setting of the caching allocator, beside those of s, lets the request of an op through, and
// all before it.
func (c *comparer) helps(setting string, op int, s *Spec, limit int64) (bool, error) {
	one, _, err := caching.ParseConfig(setting)
	if err != nil {
		return false, fmt.Errorf("replay: try the remedy %q: %w", setting, err)
	}
	cfg := s.config
	cfg.ExpandableSegments = cfg.ExpandableSegments || one.ExpandableSegments
	cfg.MaxSplitSize = min(cfg.MaxSplitSize, one.MaxSplitSize)
	upTo := *c.w.Program
	upTo.Ops = upTo.Ops[:op+1]
	run := simulation{
		work: c.w, ops: &upTo, spec: &Spec{Text: setting, open: openCaching(cfg)}, limit: limit, capacity: c.opts.Capacity,
		ungauged: true,
	}
	res, err := run.do()
	if err != nil {
		return false, fmt.Errorf("replay: try the remedy %q: %w", setting, err)
	}
	return res.Completed && res.NumOOMs == 0, nil
}
