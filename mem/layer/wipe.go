package layer

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/owners"
)

// A foreignRange is memory whose bytes are not those of the tenant that gets it.
type foreignRange struct {
	at   driver.Pointer
	size int64
	was  owners.ID
}

// claim makes a block's memory a tenant's. It returns the ranges that were not, ascending.
func (d *TenantDevice) claim(b mem.Block, owner owners.ID) (foreign []foreignRange) {
	add := func(at driver.Pointer, size int64, was owners.ID) {
		foreign = append(foreign, foreignRange{at, size, was})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at, end := b.Ptr, b.Ptr+driver.Pointer(b.Size)
	for i := d.places.After(at); at < end; i++ {
		if i == len(d.places) || d.places[i].At >= end { // memory that does not come from d
			add(at, int64(end-at), owners.Unknown)
			break
		}
		e := d.places[i]
		if e.At > at {
			add(at, int64(e.At-at), owners.Unknown)
			at = e.At
		}
		to := min(end, e.End())
		e.Value.Claim(int64(at-e.At), int64(to-e.At), owner, func(from, to int64, was owners.ID) {
			add(e.At+driver.Pointer(from), to-from, was)
		})
		at = to
	}
	return foreign
}

// Forget makes the users of all memory unknown, so that each tenant's next blocks are wiped. It is for callers that
// have put contents elsewhere without a tenant's request, such as paged.Allocator.Resume: new pages are taken to be
// unused.
func (d *TenantDevice) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.places {
		e.Value.Reset(owners.Unknown)
	}
	for _, m := range d.pages {
		m.Reset(owners.Unknown)
	}
}

// wipe makes a block's memory a tenant's: it zeroes the bytes that were not, in the order of s. It returns their
// number. After an error the bytes are those of their former users, and work on s and the streams in used may use them.
func (d *TenantDevice) wipe(
	s driver.Stream, b mem.Block, owner owners.ID,
) (wiped int64, used []driver.Stream, err error) {
	foreign := d.claim(b, owner)
	if len(foreign) == 0 {
		return 0, nil, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("wipe memory of other tenants: %w", err)
			for _, f := range foreign {
				d.claim(mem.Block{Ptr: f.at, Size: f.size}, f.was)
			}
		}
	}()
	capturing := false
	if g := d.Graphs(); g != nil {
		if capturing, err = g.Capturing(s); err != nil {
			return 0, nil, err
		}
	}
	if capturing {
		return d.wipeNow(foreign)
	}
	if wiped, err = fill(s, foreign); err != nil {
		nowUsed(foreign)
	}
	return wiped, nil, err
}

// nowUsed notes that queued work may use the ranges.
func nowUsed(foreign []foreignRange) {
	for i := range foreign {
		if foreign[i].was == owners.Fresh {
			foreign[i].was = owners.Unknown
		}
	}
}

// fill queues the wiping of all ranges, of neighbours together.
func fill(s driver.Stream, foreign []foreignRange) (wiped int64, err error) {
	for len(foreign) > 0 {
		at, end, n := foreign[0].at, foreign[0].at, 0
		for n < len(foreign) && foreign[n].at == end {
			end += driver.Pointer(foreign[n].size)
			n++
		}
		if err := s.Fill(at, 0, int64(end-at)); err != nil {
			return 0, err
		}
		wiped += int64(end - at)
		foreign = foreign[n:]
	}
	return wiped, nil
}

// wipeNow wipes memory for a stream that captures: a Fill there would belong to the graph, and the bytes would remain
// until the graph is launched. So it wipes on a stream of its own and waits. That is correct only for memory that no
// queued work uses. If the stream cannot be closed, the wipe may still be queued there.
func (d *TenantDevice) wipeNow(foreign []foreignRange) (wiped int64, used []driver.Stream, err error) {
	for _, f := range foreign {
		if f.was != owners.Fresh {
			return 0, nil, fmt.Errorf("%w: allocate the memory before the capture begins", driver.ErrCapturing)
		}
	}
	if err := d.closeStreams(); err != nil {
		return 0, nil, err
	}
	s, err := d.NewStream(driver.StreamOptions{})
	if err != nil {
		return 0, nil, err
	}
	wiped, err = fill(s, foreign)
	if failed := s.Close(); failed != nil {
		nowUsed(foreign)
		d.keepOpen(s)
		return 0, []driver.Stream{s}, errors.Join(err, failed)
	}
	return wiped, nil, err
}

// closeStreams closes the streams of earlier wipes that could not be closed then.
func (d *TenantDevice) closeStreams() (err error) {
	d.mu.Lock()
	streams := d.unclosed
	d.unclosed = nil
	d.mu.Unlock()
	for _, s := range streams {
		if failed := s.Close(); failed != nil {
			d.keepOpen(s)
			err = errors.Join(err, failed)
		}
	}
	return err
}

func (d *TenantDevice) keepOpen(s driver.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unclosed = append(d.unclosed, s)
}
