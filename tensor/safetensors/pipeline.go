package safetensors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
)

const (
	leastLoaders = 4 // goroutines that load batches: a disk is faster with several requests at once
	mostLoaders  = 16
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

// run loads the pieces by several goroutines, each of which reads a batch into memory of its own and copies it. They
// read the files and do not look at the mappings, so that a file that is truncated is an error. When run returns all
// copies are queued and the files are no longer used.
func (l *loading) run(ctx context.Context, progress func(done, total int64)) (err error) {
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
	loaders := min(max(leastLoaders, runtime.GOMAXPROCS(0)*3/4), mostLoaders, len(work))
	rooms := l.rooms(loaders)
	defer func() { err = errors.Join(err, rooms.free()) }()
	var (
		next    atomic.Int64 // the first batch that no loader has taken
		ready   = make([]chan error, len(work))
		running sync.WaitGroup
	)
	defer running.Wait()
	defer stop()
	for i := range ready {
		ready[i] = make(chan error, 1)
	}
	for k := range loaders {
		running.Go(func() {
			room := rooms.memory[k]
			for i := next.Add(1) - 1; i < int64(len(work)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				var err error
				room, err = work[i].load(ctx, room[:0])
				ready[i] <- err
			}
		})
	}
	for i, b := range work {
		select {
		case err = <-ready[i]:
		case <-ctx.Done():
		}
		if err = cmp.Or(err, b[0].failed(ctx.Err())); err != nil {
			return err
		}
		for j := range b {
			l.done += b[j].n
		}
		tell()
	}
	return nil
}

// rooms are memory for a batch of each loader. That of large loads is page-locked if the device has such memory: it
// reads such memory itself.
type rooms struct {
	memory [][]byte
	pinned driver.Pinned // nil if the memory is Go's
}

// lockFrom is the size of a load from which on rooms are page-locked: locking 4 MiB takes as long as loading 40.
var lockFrom = int64(512 << 20)

func (l *loading) rooms(n int) *rooms {
	r := &rooms{memory: make([][]byte, n)}
	if l.total-l.done < lockFrom {
		return r
	}
	r.pinned = l.pieces[0].to.Place().Device().Pinned()
	for i := 0; i < n && r.pinned != nil; i++ {
		room, err := r.pinned.AllocHost(transfer.Piece)
		if err != nil {
			break // other rooms are ordinary memory
		}
		r.memory[i] = room
	}
	return r
}

// free frees page-locked memory. The loaders have ended.
func (r *rooms) free() error {
	var errs []error
	for _, room := range r.memory {
		if room != nil && r.pinned != nil {
			errs = append(errs, r.pinned.FreeHost(room))
		}
	}
	return errors.Join(errs...)
}

// load reads the pieces into room and copies them to the device.
func (b batch) load(ctx context.Context, room []byte) ([]byte, error) {
	room, err := b.read(room)
	if err != nil {
		return room, b[0].failed(err)
	}
	rest := room
	for i := range b {
		c := &b[i]
		err := ctx.Err()
		if err == nil {
			err = transfer.In(c.to, c.at, rest[:c.n])
		}
		if err != nil {
			return room, c.failed(err)
		}
		rest = rest[c.n:]
	}
	return room, nil
}

// failed returns the error of a piece, nil for none.
func (c *piece) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("safetensors: %s: tensor %s: %w", c.f.path, quoted(c.name), err)
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
