package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A series is one counter over time.
type series struct {
	name   string
	bytes  bool
	points []moment
}

type moment struct {
	at    time.Duration
	value int64
}

// memoryCounter is the counter of Options.Memory.
const memoryCounter = "memory"

// series returns the counters that have times, memory first and the others by name. Each is in the order of time, with
// one value a moment.
func (r *Recording) series() []series {
	byName := map[string]*series{}
	var all []*series
	add := func(name string, at time.Duration, value int64) {
		if at == Unknown {
			return
		}
		s := byName[name]
		if s == nil {
			s = &series{name: name, bytes: strings.HasSuffix(name, "memory") || strings.HasSuffix(name, "bytes")}
			byName[name], all = s, append(all, s)
		}
		s.points = append(s.points, moment{at, value})
	}
	for i := range r.Spans {
		e := &r.Spans[i]
		if e.Memory.Begin >= 0 {
			add(memoryCounter, e.Start, e.Memory.Begin)
		}
		if e.Memory.End >= 0 {
			add(memoryCounter, e.End, e.Memory.End)
		}
	}
	for _, s := range r.Samples {
		add(s.Name, s.At, s.Value)
	}
	slices.SortFunc(all, func(a, b *series) int {
		switch {
		case a.name == b.name:
			return 0
		case a.name == memoryCounter:
			return -1
		case b.name == memoryCounter:
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	sorted := make([]series, len(all))
	for i, s := range all {
		slices.SortStableFunc(s.points, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
		s.points = slices.Compact(s.points)
		sorted[i] = *s
	}
	return sorted
}
