package memtest

import "github.com/ashlar-go/ashlar/mem"

func (p *pool) Snapshot() []mem.SegmentInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot()
}

func (p *pool) snapshot() []mem.SegmentInfo {
	var out []mem.SegmentInfo
	for _, seg := range p.segments {
		info := mem.SegmentInfo{Ptr: seg.ptr, TotalSize: seg.size, Stream: seg.stream, Large: seg.large}
		for i, pc := range seg.pieces {
			if p.bug == gapInSnapshot && i > 3 && i == len(seg.pieces)-1 {
				continue
			}
			b := mem.BlockInfo{Ptr: pc.ptr, Size: pc.size, RequestedSize: pc.asked, State: pc.state}
			info.Blocks = append(info.Blocks, b)
			if pc.state == mem.ActiveAllocated {
				info.AllocatedSize += pc.size
			}
			if pc.state != mem.Inactive {
				info.ActiveSize += pc.size
				info.RequestedSize += pc.asked
			}
		}
		out = append(out, info)
	}
	return out
}

// count brings the statistics up to date.
func (p *pool) count() {
	var now [9][2]int64
	for _, seg := range p.snapshot() {
		class := 0
		if seg.Large {
			class = 1
		}
		add := func(i int, n int64) { now[i][class] += n }
		add(1, 1)
		add(4, seg.AllocatedSize)
		add(5, seg.TotalSize)
		add(6, seg.ActiveSize)
		add(8, seg.RequestedSize)
		for _, b := range seg.Blocks {
			switch {
			case b.State == mem.ActiveAllocated:
				add(0, 1)
				add(2, 1)
			case b.State == mem.ActivePendingFree:
				add(2, 1)
				if p.bug == miscounts {
					add(8, b.Size-b.RequestedSize)
				}
			case len(seg.Blocks) > 1:
				add(3, 1)
				add(7, b.Size)
			}
		}
	}
	now[0][0] += p.refused
	if p.bug == offByOne && len(p.waiting) > 0 {
		now[2][0]++
	}
	allocated := p.stats.AllocatedBytes.All
	for i, a := range p.stats.Arrays() {
		move(&a.Array.SmallPool, now[i][0])
		move(&a.Array.LargePool, now[i][1])
		move(&a.Array.All, now[i][0]+now[i][1])
	}
	if p.bug == latePeak {
		p.stats.AllocatedBytes.All.Peak = max(allocated.Peak, allocated.Current)
	}
	if asked := &p.stats.RequestedBytes.All; p.bug == stalePeak {
		asked.Peak = asked.Current
	}
}

func move(s *mem.Stat, to int64) {
	if d := to - s.Current; d > 0 {
		s.Allocated += d
	} else {
		s.Freed -= d
	}
	s.Current, s.Peak = to, max(s.Peak, to)
}

func (p *pool) Stats() mem.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

func (p *pool) ResetPeakStats() {
	p.eachStat(func(s *mem.Stat) { s.Peak = s.Current })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bug != keepsLargest {
		p.stats.LargestAlloc = 0
	}
}

func (p *pool) ResetAccumulatedStats() { p.eachStat(func(s *mem.Stat) { s.Allocated, s.Freed = 0, 0 }) }

func (p *pool) eachStat(f func(*mem.Stat)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.stats.Arrays() {
		for _, s := range []*mem.Stat{&a.Array.All, &a.Array.SmallPool, &a.Array.LargePool} {
			f(s)
			if p.bug == peakFalls {
				s.Peak = 0
			}
		}
	}
}
