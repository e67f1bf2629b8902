package snapshottest

func (g *generator) writeSegment(s *segment) {
	p := g.p
	var active, requested int64
	for _, b := range s.slots {
		if b.used {
			active += b.size
			requested += b.requested
		}
	}
	p.Dict()
	p.Mark()
	p.Key("device")
	p.Int(0)
	p.Key("address")
	p.Int(int64(s.address))
	for key, n := range pairs("total_size", s.size, "allocated_size", active, "active_size", active,
		"requested_size", requested, "stream", 0) {
		p.Key(key)
		p.Int(n)
	}
	p.Key("segment_type")
	if s.slots[0].size > 1<<20 {
		p.Key("large")
	} else {
		p.Key("small")
	}
	p.Key("segment_pool_id")
	p.Int(0)
	p.Int(0)
	p.Tuple2()
	p.Key("is_expandable")
	p.Bool(false)
	p.Key("blocks")
	p.List()
	p.Mark()
	end := s.address
	for _, b := range s.slots {
		state := "inactive"
		if b.used {
			state = "active_allocated"
		}
		g.writeBlock(b.address, b.size, b.requested, state, b.stack)
		end = b.address + uint64(b.size)
	}
	if rest := s.address + uint64(s.size) - end; rest > 0 {
		g.writeBlock(end, int64(rest), 0, "inactive", 0)
	}
	p.Appends()
	p.SetItems()
}

func (g *generator) writeBlock(address uint64, size, requested int64, state string, stack int) {
	p := g.p
	p.Dict()
	p.Mark()
	p.Key("address")
	p.Int(int64(address))
	p.Key("size")
	p.Int(size)
	p.Key("requested_size")
	p.Int(requested)
	p.Key("state")
	p.Key(state)
	if g.Stacks > 0 {
		p.Key("frames")
		g.frames(stack)
	}
	p.SetItems()
}

// pairs yields keys and numbers in turn.
func pairs(list ...any) func(yield func(string, int64) bool) {
	return func(yield func(string, int64) bool) {
		for i := 0; i < len(list); i += 2 {
			n, ok := list[i+1].(int64)
			if !ok {
				n = int64(list[i+1].(int))
			}
			if !yield(list[i].(string), n) {
				return
			}
		}
	}
}
