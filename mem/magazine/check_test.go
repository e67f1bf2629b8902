package magazine

import "fmt"

// Check adds up what every place holds and compares it with what the place says. No call may be under way.
func (c *Cache) Check() error {
	c.lock()
	defer c.unlock()
	var held [2]flow
	add := func(magazine ref, class int, n uint16) (size int64, err error) {
		for at := magazine; at != 0; n-- {
			r := c.records.at(at)
			if r.lent() || int(r.class) != class || n == 0 {
				return 0, fmt.Errorf("class %d: record %d of class %d, lent %v, %d more to come", class, at, r.class, r.lent(), n)
			}
			sum := &held[0]
			if class > smallSize/unit {
				sum = &held[1]
			}
			sum.add(r.block.Size, int64(r.first))
			size += r.block.Size
			at = r.next
		}
		if magazine != 0 && n != 0 {
			return 0, fmt.Errorf("class %d: a magazine lacks %d blocks", class, n)
		}
		return size, nil
	}
	for i := range c.racks {
		rk := &c.racks[i]
		room := c.share.rack
		for stream, sh := range rk.shelves {
			if sh == nil {
				continue
			}
			left := c.share.shelf
			for class, cell := range sh.cells {
				top, err1 := add(cell.top, class, cell.n)
				full, err2 := add(cell.full, class, cell.limit)
				if err1 != nil || err2 != nil {
					return fmt.Errorf("rack %d, stream %d: %v, %v", i, stream, err1, err2)
				}
				left -= top + full
			}
			if left != sh.room || left < 0 {
				return fmt.Errorf("rack %d, stream %d: room is %d, want %d", i, stream, sh.room, left)
			}
			room -= c.share.shelf - left
		}
		if room != rk.room || room < 0 {
			return fmt.Errorf("rack %d: room is %d, want %d", i, rk.room, room)
		}
	}
	all := c.opts.Total / 2
	for stream, d := range c.depots {
		if d == nil {
			continue
		}
		left, n := c.share.depot, int64(0)
		for class, magazine := range d.stacks {
			for ; magazine != 0; magazine = c.records.at(magazine).chain {
				size, err := add(magazine, class, limitOf(uint32(class)))
				if err != nil {
					return fmt.Errorf("depot of stream %d: %v", stream, err)
				}
				left, n = left-size, n+1
			}
		}
		if left != d.room || left < 0 || n != d.n.Load() {
			return fmt.Errorf("depot of stream %d: room is %d, want %d; %d magazines, want %d", stream, d.room, left, d.n.Load(), n)
		}
		all -= c.share.depot - left
	}
	if all != c.room.Load() || all < 0 {
		return fmt.Errorf("depots: room is %d, want %d", c.room.Load(), all)
	}
	sum := c.sum()
	for i := range held {
		if h := sum[i].held(); h.n != held[i].n || h.bytes != held[i].bytes {
			return fmt.Errorf("counts say that %+v is held, want %+v", h, held[i])
		}
	}
	return nil
}
