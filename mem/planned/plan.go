package planned

import (
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/fit/pack"
)

// A Plan is the layout of a known workload. An Allocator does not change it, so several may share one.
type Plan struct {
	Trace   string       // a description of its trace; at most 512 bytes
	Device  Device       // the device that it is for
	Room    int          // percent by which a request may be larger or smaller than recorded; 0 to 1000
	Streams []StreamPlan // one for each stream, or for several that share memory
	// Start says which of the first blocks stay, for a Learner, ascending by Size. An Allocator ignores it.
	Start []Start
}

// A Device is the required properties of a plan's device. Zero fields are not checked.
type Device struct {
	Name        string // as in driver.Info; at most 512 bytes
	TotalMemory int64  // bytes
	Alignment   int64  // minimum alignment of the device's addresses, in bytes
}

// A StreamPlan is the requests of one stream, or of several that share a part of the region.
type StreamPlan struct {
	Stream int    // the stream's number in the program
	Shared []int  // the numbers of further streams that make some of the requests
	Loop   int    // the position after the last one; -1: the plan ends
	Size   int64  // bytes of its part of the region
	Slots  []Slot // by position
	// Steps are the positions at which steps begin, ascending; at most 256. Any step may follow another one. Without
	// them, the requests come in order.
	Steps []int
}

// Numbers returns the numbers of the streams that make the requests. Slot.Stream is an index into them.
func (l *StreamPlan) Numbers() []int { return append([]int{l.Stream}, l.Shared...) }

// A Slot is one request and the offset of its block.
type Slot struct {
	Size   int64 // bytes requested when it was recorded; positive
	Offset int64 // in the stream's part of the region; -1: the fallback serves it
	// End is the position before which the block is freed. A block of the body that is freed in the next round has an
	// End above len(Slots), counted on from there. Forever means never.
	End    int
	Stream int // which of its StreamPlan's streams: 0 is Stream, n is Shared[n-1]
}

// Forever is the end of a slot whose block is never freed.
const Forever = math.MaxInt32

// Size returns the size of the region in bytes.
func (p *Plan) Size() (size int64) {
	for i := range p.Streams {
		size += p.Streams[i].Size
	}
	return size
}

// Slots returns the number of requests that the region serves, and of all expected requests.
func (p *Plan) Slots() (placed, all int) {
	for i := range p.Streams {
		for _, s := range p.Streams[i].Slots {
			if s.Offset >= 0 {
				placed++
			}
		}
		all += len(p.Streams[i].Slots)
	}
	return placed, all
}

// Bound returns a lower bound of the region's size in bytes: no packing of the StreamPlans, each by itself, is smaller.
func (p *Plan) Bound() int64 {
	return p.peak(func(s *Slot) int64 { return roundUp(p.most(s.Size)) })
}

// Requested returns the peak of the recorded bytes that the region serves, added over the StreamPlans.
func (p *Plan) Requested() int64 { return p.peak(func(s *Slot) int64 { return s.Size }) }

func (p *Plan) peak(size func(*Slot) int64) (sum int64) {
	for i := range p.Streams {
		buffers, _ := p.Streams[i].buffers(size)
		sum += pack.Bound(buffers)
	}
	return sum
}

// least and most return the smallest and the largest request that a slot of a recorded size serves.
func (p *Plan) least(size int64) int64 {
	return max(1, (size*100+99+int64(p.Room))/(100+int64(p.Room)))
}

func (p *Plan) most(size int64) int64 {
	return size + size/100*int64(p.Room) + size%100*int64(p.Room)/100
}

// wraps reports whether a slot's block is still live in the next round, and until which position.
func (l *StreamPlan) wraps(s *Slot) (end int, ok bool) {
	if l.Loop < 0 || s.End <= len(l.Slots) || s.End == Forever {
		return 0, false
	}
	return s.End - (len(l.Slots) - l.Loop), true
}

// buffers returns the lifetimes of the placed slots, and the slot of each. A slot that wraps has two.
func (l *StreamPlan) buffers(size func(*Slot) int64) (buffers []pack.Buffer, of []int) {
	for i := range l.Slots {
		s := &l.Slots[i]
		if s.Offset < 0 {
			continue
		}
		b := pack.Buffer{Lower: int64(i), Upper: int64(min(s.End, len(l.Slots))), Size: size(s)}
		buffers, of = append(buffers, b), append(of, i)
		if end, ok := l.wraps(s); ok && end > l.Loop {
			b.Lower, b.Upper = int64(l.Loop), int64(end)
			buffers, of = append(buffers, b), append(of, i)
		}
	}
	return buffers, of
}

// Check returns an error for an invalid plan, such as one in which two live blocks overlap.
func (p *Plan) Check() error {
	if err := checkStart(p.Start); err != nil {
		return err
	}
	streams := map[int]bool{}
	switch {
	case len(p.Trace) > maxName || len(p.Device.Name) > maxName:
		return fmt.Errorf("planned: the trace's name has %d bytes, the device's %d, want at most %d", len(p.Trace),
			len(p.Device.Name), maxName)
	case p.Device.TotalMemory < 0:
		return fmt.Errorf("planned: a device with %d bytes, want 0 (any) or more", p.Device.TotalMemory)
	case p.Device.Alignment < 0 || p.Device.Alignment&(p.Device.Alignment-1) != 0:
		return fmt.Errorf("planned: an alignment of %d, want a power of two, or 0 (any)", p.Device.Alignment)
	case p.Room < 0 || p.Room > 1000:
		return fmt.Errorf("planned: room of %d percent, want 0 to 1000", p.Room)
	case len(p.Streams) > maxStreams:
		return fmt.Errorf("planned: %d streams, want at most %d", len(p.Streams), maxStreams)
	}
	var size int64
	for i := range p.Streams {
		l := &p.Streams[i]
		for _, n := range l.Numbers() {
			if n < 0 || n >= maxStreams || streams[n] {
				return fmt.Errorf("planned: entry %d is of stream %d: want 0 to %d, each at most once", i, n,
					maxStreams-1)
			}
			streams[n] = true
		}
		if err := p.checkStream(l); err != nil {
			return fmt.Errorf("planned: stream %d: %w", l.Stream, err)
		}
		if size += l.Size; size > maxSize {
			return fmt.Errorf("planned: a region of more than %d bytes", int64(maxSize))
		}
	}
	return nil
}

func (p *Plan) checkStream(l *StreamPlan) error {
	n := len(l.Slots)
	switch {
	case n == 0 || n > maxSlots:
		return fmt.Errorf("%d slots, want 1 to %d", n, maxSlots)
	case l.Loop < -1 || l.Loop >= n:
		return fmt.Errorf("it loops to position %d: want 0 to %d", l.Loop, n-1)
	case l.Size < 0 || l.Size > maxSize || l.Size%grain != 0:
		return fmt.Errorf("size %d, want a multiple of %d", l.Size, grain)
	case len(l.Steps) > maxSteps:
		return fmt.Errorf("%d steps, want at most %d", len(l.Steps), maxSteps)
	}
	for i, at := range l.Steps {
		if at < 0 || at >= n || i > 0 && at <= l.Steps[i-1] {
			return fmt.Errorf("step %d begins at %d: want them in order, from 0 to %d", i, at, n-1)
		}
	}
	for i := range l.Slots {
		s := &l.Slots[i]
		last := n
		if l.Loop >= 0 && i >= l.Loop {
			last = i + n - l.Loop
		}
		switch {
		case s.Size < 1 || s.Size > maxRequest:
			return fmt.Errorf("slot %d asks for %d bytes: want 1 to %d", i, s.Size, int64(maxRequest))
		case s.Stream < 0 || s.Stream > len(l.Shared):
			return fmt.Errorf("slot %d is of stream %d of the entry, want 0 to %d", i, s.Stream, len(l.Shared))
		case s.Offset < 0 && s.Offset != -1 || s.Offset > maxSize || s.Offset >= 0 && s.Offset%grain != 0:
			return fmt.Errorf("slot %d at %d, want a multiple of %d, or -1", i, s.Offset, grain)
		case s.Offset >= 0 && s.Offset+roundUp(p.most(s.Size)) > l.Size:
			return fmt.Errorf("slot %d of %d bytes at %d ends beyond the size: want it within %d", i, s.Size, s.Offset,
				l.Size)
		case s.End <= i, s.End > Forever, s.Offset >= 0 && s.End > last &&
			(s.End != Forever || l.Loop >= 0 && i >= l.Loop):
			return fmt.Errorf("slot %d ends at %d, want %d to %d", i, s.End, i+1, last)
		}
	}
	buffers, of := l.buffers(func(s *Slot) int64 { return roundUp(p.most(s.Size)) })
	offsets := make([]int64, len(of))
	for i, slot := range of {
		offsets[i] = l.Slots[slot].Offset
		buffers[i].ID = fmt.Sprint("slot ", slot)
	}
	_, err := pack.Validate(buffers, offsets)
	return err
}
