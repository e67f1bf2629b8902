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
	leastReaders = 4 // goroutines that bring pieces into memory: a disk wants several requests at once
	ahead        = 4 // pieces that each of them may be ahead of the copy
	small        = 256 << 10
)

// run copies the pieces, in order, while readers bring those to come into memory. It returns when all is queued to the
// stream and the files are not looked at any more.
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
	var (
		next    atomic.Int64                                 // the first piece that no reader has taken
		readers = max(leastReaders, runtime.GOMAXPROCS(0)/2) // what the system has in memory costs processors alone
		room    = make(chan struct{}, ahead*readers)         // a token for each piece that is taken and not copied
		ready   = make([]chan error, len(l.pieces))
		running sync.WaitGroup
		gather  []byte
	)
	defer running.Wait()
	defer stop()
	for i := range ready {
		ready[i] = make(chan error, 1)
	}
	for range min(readers, len(l.pieces)) {
		running.Go(func() {
			for {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					return
				}
				i := next.Add(1) - 1
				if i >= int64(len(l.pieces)) {
					return
				}
				ready[i] <- l.pieces[i].populate()
			}
		})
	}
	for i := range l.pieces {
		c := &l.pieces[i]
		var err error
		select {
		case err = <-ready[i]:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return fmt.Errorf("safetensors: %s: tensor %s: %w", c.f.path, quoted(c.name), ctx.Err())
		}
		if err == nil {
			gather, err = c.copy(gather)
		}
		if err != nil {
			return fmt.Errorf("safetensors: %s: tensor %s: %w", c.f.path, quoted(c.name), err)
		}
		<-room
		l.done += c.n
		tell()
	}
	return nil
}

// populate brings the piece into memory, and where it goes to as well.
func (c *piece) populate() error {
	for span := range c.from.spans(c.memory, c.at, c.n) {
		if err := mapped.Populate(span); err != nil {
			return err
		}
	}
	transfer.Prepare(c.to, c.at, c.n)
	return nil
}

// copy copies the piece to the device: long runs from where they are, short ones by way of room, which it returns.
func (c *piece) copy(room []byte) ([]byte, error) {
	if c.from.run >= min(small, c.n) {
		at := c.at
		for span := range c.from.spans(c.memory, c.at, c.n) {
			if err := transfer.In(c.to, at, span); err != nil {
				return room, err
			}
			at += int64(len(span))
		}
		return room, nil
	}
	room = room[:0]
	for span := range c.from.spans(c.memory, c.at, c.n) {
		room = append(room, span...)
	}
	return room, transfer.In(c.to, c.at, room)
}
