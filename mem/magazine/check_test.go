package magazine

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// Check adds up the blocks in every place and compares the sum with the place's own count. No call may be in progress.
func (c *Cache) Check() error {
	c.lockAll()
	defer c.unlockAll()
	var held [2]stats.Sums
	add := func(magazine ref, class int, n uint16) (size int64, err error) {
		for at := magazine; at != 0; n-- {
			r := c.blocks.at(at)
			if r.live() || int(r.class) != class || n == 0 {
				return 0, fmt.Errorf("class %d: record %d of class %d, live %v, %d more to come", class, at, r.class, r.live(), n)
			}
			sum := &held[0]
			if class > smallSize/unit {
				sum = &held[1]
			}
			sum.Add(stats.Block(r.block.Size, int64(r.requestedBelow)))
			size += r.block.Size
			at = r.next
		}
		if magazine != 0 && n != 0 {
			return 0, fmt.Errorf("class %d: a magazine lacks %d blocks", class, n)
		}
		return size, nil
	}
	for i := range c.processors {
		rk := &c.processors[i]
		room := c.limits.processor
		for stream, sh := range rk.streams {
			if sh == nil {
				continue
			}
			left := c.limits.stream
			for class, cell := range sh.classes {
				top, err1 := add(cell.top, class, cell.n)
				full, err2 := add(cell.full, class, cell.limit)
				if err1 != nil || err2 != nil {
					return fmt.Errorf("processor %d, stream %d: %v, %v", i, stream, err1, err2)
				}
				left -= top + full
			}
			if left != sh.room || left < 0 {
				return fmt.Errorf("processor %d, stream %d: room is %d, want %d", i, stream, sh.room, left)
			}
			room -= c.limits.stream - left
		}
		if room != rk.room || room < 0 {
			return fmt.Errorf("processor %d: room is %d, want %d", i, rk.room, room)
		}
	}
	all := c.opts.Total / 2
	for stream, d := range c.depots {
		if d == nil {
			continue
		}
		left, n := c.limits.depot, int64(0)
		for class, magazine := range d.stacks {
			for ; magazine != 0; magazine = c.blocks.at(magazine).nextMagazine {
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
		all -= c.limits.depot - left
	}
	if all != c.room.Load() || all < 0 {
		return fmt.Errorf("depots: room is %d, want %d", c.room.Load(), all)
	}
	sum := c.sum()
	for i := range held {
		if h := sum[i].held(); h.N != held[i].N || h.Bytes != held[i].Bytes {
			return fmt.Errorf("counts say that %+v is held, want %+v", h, held[i])
		}
	}
	return nil
}
