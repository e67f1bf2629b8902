package safetensors

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
)

const (
	leastReaders = 4 // goroutines that read pieces into memory: a disk is faster with several requests at once
	ahead        = 4 // pieces that each of them may read before the copy needs them
	small        = 256 << 10
	batchPieces  = 1024 // pieces of small tensors that are read together
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

// run copies the pieces, in order, while other goroutines read the next ones into memory. When it returns all copies
// are queued and the files are no longer used.
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
		next    atomic.Int64                                 // the first batch that no reader has taken
		readers = max(leastReaders, runtime.GOMAXPROCS(0)/2) // reading cached files is limited by processors only
		room    = make(chan struct{}, ahead*readers)         // a token for each batch that is taken and not copied
		ready   = make([]chan error, len(work))
		running sync.WaitGroup
		gather  []byte
	)
	defer running.Wait()
	defer stop()
	for i := range ready {
		ready[i] = make(chan error, 1)
	}
	for range min(readers, len(work)) {
		running.Go(func() {
			for {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					return
				}
				i := next.Add(1) - 1
				if i >= int64(len(work)) {
					return
				}
				ready[i] <- work[i].populate()
			}
		})
	}
	for i := range work {
		var err error
		select {
		case err = <-ready[i]:
		case <-ctx.Done():
		}
		for j := range work[i] {
			c := &work[i][j]
			if ctx.Err() != nil {
				return c.failed(ctx.Err())
			}
			if err == nil {
				gather, err = c.copy(gather)
			}
			if err != nil {
				return c.failed(err)
			}
			l.done += c.n
		}
		<-room
		tell()
	}
	return nil
}

// failed returns the error of a piece.
func (c *piece) failed(err error) error {
	return fmt.Errorf("safetensors: %s: tensor %s: %w", c.f.path, quoted(c.name), err)
}

// populate reads the pieces into memory, and populates the destinations of large ones too. Adjacent parts of a file
// take one system call.
func (b batch) populate() error {
	var file *piece // its file has the bytes [begin, end), which are not read yet
	var begin, end int64
	flush := func() error {
		if begin == end {
			return nil
		}
		return mapped.Populate(file.memory[begin:end])
	}
	for i := range b {
		c := &b[i]
		for from, to := range c.from.spans(c.at, c.n) {
			if file != nil && file.f == c.f && from == end {
				end = to
				continue
			}
			if err := flush(); err != nil {
				return err
			}
			file, begin, end = c, from, to
		}
		transfer.Prepare(c.to, c.at, c.n)
	}
	return flush()
}

// copy copies the piece to the device: long runs directly, short ones through room, which it returns.
func (c *piece) copy(room []byte) ([]byte, error) {
	if c.from.run >= min(small, c.n) {
		at := c.at
		for begin, end := range c.from.spans(c.at, c.n) {
			if err := transfer.In(c.to, at, c.memory[begin:end]); err != nil {
				return room, err
			}
			at += end - begin
		}
		return room, nil
	}
	room = room[:0]
	for begin, end := range c.from.spans(c.at, c.n) {
		room = append(room, c.memory[begin:end]...)
	}
	return room, transfer.In(c.to, c.at, room)
}
