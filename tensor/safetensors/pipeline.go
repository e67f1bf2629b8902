package safetensors

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
)

const (
	leastReaders = 4 // goroutines that read pieces into memory: a disk is faster with several requests at once
	mostReaders  = 16
	ahead        = 2         // batches for each of them that are read before the copy needs them
	batchPieces  = 1024      // pieces of small tensors that are read together
	nearBytes    = 64 << 10  // distance of runs up to which the bytes between them are read, too
	windowBytes  = 256 << 10 // bytes of near runs that are read together
)

// A batch is a list of pieces that are read into memory together: one large piece, or many small consecutive ones.
type batch []piece

// batches groups the pieces, in order, into batches with at most the bytes of one full piece.
func batches(pieces []piece) []batch {
	var all []batch
	for first := 0; first < len(pieces); {
		end, bytes := first+1, pieces[first].n
		for end < len(pieces) && end-first < batchPieces && bytes+pieces[end].n <= transfer.Piece {
			bytes += pieces[end].n
			end++
		}
		all = append(all, pieces[first:end])
		first = end
	}
	return all
}

// A reading is a batch that was read.
type reading struct {
	room []byte // its bytes
	err  error
}

// run copies the pieces, in order, while other goroutines read the next ones into memory. They read the files and do
// not look at the mappings, so that a file that is truncated is an error. When run returns all copies are queued and
// the files are no longer used.
func (l *loading) run(ctx context.Context, progress func(done, total int64)) error {
	tell := func() {
		if progress != nil {
			progress(l.done, l.total)
		}
	}
	tell()
	if len(l.pieces) == 0 {
		return ctx.Err()
	}
	ctx, stop := context.WithCancel(ctx)
	work := batches(l.pieces)
	var (
		next    atomic.Int64 // the first batch that no reader has taken
		readers = min(max(leastReaders, runtime.GOMAXPROCS(0)/2), mostReaders)
		rooms   = make(chan []byte, ahead*readers) // memory for one batch each
		ready   = make([]chan reading, len(work))
		running sync.WaitGroup
	)
	defer running.Wait()
	defer stop()
	for i := range ready {
		ready[i] = make(chan reading, 1)
	}
	for range cap(rooms) {
		rooms <- nil
	}
	for range min(readers, len(work)) {
		running.Go(func() {
			for {
				var room []byte
				select {
				case room = <-rooms:
				case <-ctx.Done():
					return
				}
				i := next.Add(1) - 1
				if i >= int64(len(work)) {
					return
				}
				room, err := work[i].read(room[:0])
				ready[i] <- reading{room, err}
			}
		})
	}
	for i := range work {
		var r reading
		select {
		case r = <-ready[i]:
		case <-ctx.Done():
			r.err = ctx.Err()
		}
		if err := l.copy(ctx, work[i], r); err != nil {
			return err
		}
		rooms <- r.room
		tell()
	}
	return nil
}

// copy copies the pieces of a batch to the device.
func (l *loading) copy(ctx context.Context, work batch, r reading) error {
	b := r.room
	for i := range work {
		c := &work[i]
		err := cmp.Or(ctx.Err(), r.err)
		if err == nil {
			err = transfer.In(c.to, c.at, b[:c.n])
		}
		if err != nil {
			return fmt.Errorf("safetensors: %s: tensor %s: %w", c.f.path, quoted(c.name), err)
		}
		b = b[c.n:]
		l.done += c.n
	}
	return nil
}

// read appends the bytes of the pieces to room, and prepares the destinations. Adjacent parts of a file take one system
// call.
func (b batch) read(room []byte) ([]byte, error) {
	var file *mapped.File // whose bytes [begin, end) are not read yet
	var begin, end, total int64
	flush := func() error {
		if begin == end {
			return nil
		}
		n := len(room)
		room = room[:n+int(end-begin)]
		_, err := file.ReadAt(room[n:], begin)
		begin = end
		return err
	}
	for i := range b {
		total += b[i].n
	}
	room = slices.Grow(room, int(total))
	for i := range b {
		c := &b[i]
		transfer.Prepare(c.to, c.at, c.n)
		if c.from.runs > 1 && c.from.apart <= nearBytes {
			err := flush()
			if err == nil {
				room, err = c.gather(room)
			}
			if err != nil {
				return room, err
			}
			continue
		}
		for from, to := range c.from.spans(c.at, c.n) {
			if file == c.memory && from == end {
				end = to
				continue
			}
			if err := flush(); err != nil {
				return room, err
			}
			file, begin, end = c.memory, from, to
		}
	}
	return room, flush()
}

// gather appends the bytes of a piece of near runs to room. It reads the bytes between them, too.
func (c *piece) gather(room []byte) ([]byte, error) {
	window := make([]byte, windowBytes)
	var begin, end int64 // of the file, in window
	last := c.from.first + (c.from.runs-1)*c.from.apart + c.from.run
	for from, to := range c.from.spans(c.at, c.n) {
		for from < to {
			if from >= end {
				begin, end = from, min(from+windowBytes, last)
				if _, err := c.memory.ReadAt(window[:end-begin], begin); err != nil {
					return room, err
				}
			}
			stop := min(to, end)
			room = append(room, window[from-begin:stop-begin]...)
			from = stop
		}
	}
	return room, nil
}
