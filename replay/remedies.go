package replay

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// tryRemedies verifies the estimated remedies of a failure: it runs the work again on a simulated device under each
// proposed setting. A remedy with which the request succeeds is kept and is no longer an estimate. Other remedies are
// removed, so that the analysis agrees with rows that have such settings.
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

// helps reports whether a setting of the caching allocator, in addition to those of s, makes the request of an op and
// all requests before it succeed.
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
		work: c.w, ops: &upTo, spec: &Spec{Text: setting, open: openCaching(cfg)}, limit: limit,
		capacity: c.opts.Capacity,
		ungauged: true,
	}
	res, err := run.do()
	if err != nil {
		return false, fmt.Errorf("replay: try the remedy %q: %w", setting, err)
	}
	return res.Completed && res.NumOOMs == 0, nil
}
