package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// A stack is an allocator under test, made for one question, so that none finds what another left.
type stack struct {
	mem.Allocator
	io.Closer // closes all of it
}

// open opens an allocator by its name in questions, for a task.
func (a *asker) open(name string, t task) (*stack, error) {
	switch name {
	case "paged":
		al, err := paged.New(a.dev, paged.Config{})
		return &stack{al, al}, err
	case "planned":
		return a.openPlanned(t)
	}
	settings := caching.Default()
	settings.ExpandableSegments = name == "expandable"
	base, err := caching.New(a.dev, settings)
	if err != nil {
		return nil, err
	}
	switch name {
	case "caching", "expandable":
		return &stack{base, base}, nil
	case "magazine":
		top := magazine.New(base, magazine.Options{})
		return &stack{top, top}, nil
	}
	return nil, fmt.Errorf("no allocator is called %q", name)
}

const batch = 1000 // pairs between two looks at the clock

// pairs allocates and frees n blocks, one after the other.
func pairs(al mem.Allocator, s driver.Stream, size int64, n int) error {
	for range n {
		b, err := al.Alloc(s, size)
		if err != nil {
			return err
		}
		al.Free(b)
	}
	return nil
}

// warm allocates and frees one block of one size for the time d: "ns" is the time of a pair.
func (a *asker) warm(name string, size int64, d time.Duration) (_ map[string]float64, err error) {
	al, err := a.open(name, pairsTask(size))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, al.Close()) }()
	s := a.dev.DefaultStream()
	if err := pairs(al, s, size, batch); err != nil {
		return nil, err
	}
	n := 0
	start := time.Now()
	for time.Since(start) < d {
		if err := pairs(al, s, size, batch); err != nil {
			return nil, err
		}
		n += batch
	}
	return map[string]float64{"ns": float64(time.Since(start).Nanoseconds()) / float64(n)}, nil
}

// replace keeps live blocks and replaces them at random, warm * live times before the clock starts and rounds * live
// times while it runs: "ns" is the time of a replacement. The peaks are of the whole history; "driver" is the segments
// that were asked of the driver while the clock ran.
func (a *asker) replace(name string, live, warm, rounds int, seed uint64) (_ answer, err error) {
	history, checksum := replacements(seed, live, (warm+rounds)*live)
	al, err := a.open(name, replaceTask(history, live, seed))
	if err != nil {
		return answer{}, err
	}
	s := a.dev.DefaultStream()
	blocks := make([]mem.Block, live)
	defer func() {
		for _, b := range blocks {
			al.Free(b)
		}
		err = errors.Join(err, al.Close())
	}()
	work := func(history []replacement) error {
		for _, r := range history {
			al.Free(blocks[r.index])
			b, err := al.Alloc(s, r.size)
			blocks[r.index] = b
			if err != nil {
				return err
			}
		}
		return nil
	}
	measured := len(history) - rounds*live
	if err := work(history[:measured]); err != nil {
		return answer{}, err
	}
	reporter, _ := mem.Find[mem.StatsReporter](al.Allocator)
	before := reporter.Stats().NumDeviceAlloc
	start := time.Now()
	if err := work(history[measured:]); err != nil {
		return answer{}, err
	}
	elapsed := time.Since(start)
	stats := reporter.Stats()
	return answer{
		Values: map[string]float64{
			"ns":        float64(elapsed.Nanoseconds()) / float64(rounds*live),
			"requested": float64(stats.RequestedBytes.All.Peak),
			"reserved":  float64(stats.ReservedBytes.All.Peak),
			"driver":    float64(stats.NumDeviceAlloc - before),
		},
		Facts: map[string]string{"checksum": fmt.Sprintf("%016x", checksum)},
	}, nil
}

// threads has n goroutines allocate and free 4 KiB for the time d, on one stream or on a stream each: "rate" is the
// pairs per microsecond of all together.
func (a *asker) threads(name string, n int, own bool, d time.Duration) (_ map[string]float64, err error) {
	const size, few = 4096, 16
	al, err := a.open(name, task{})
	if err != nil {
		return nil, err
	}
	streams := make([]driver.Stream, n)
	defer func() {
		err = errors.Join(err, al.Close())
		for _, s := range streams {
			if s != nil {
				err = errors.Join(err, s.Close()) // of the default stream, which several share: nothing
			}
		}
	}()
	for i := range streams {
		streams[i] = a.dev.DefaultStream()
		if own {
			if streams[i], err = a.dev.NewStream(driver.StreamOptions{}); err != nil {
				return nil, err
			}
		}
	}
	var (
		stop        atomic.Bool
		total       atomic.Int64
		ready, done sync.WaitGroup
		begin       = make(chan struct{})
		failures    = make([]error, n)
	)
	for i, s := range streams {
		ready.Add(1)
		done.Go(func() {
			err, mine := pairs(al, s, size, batch), int64(0) // written to no memory that the others look at
			ready.Done()
			<-begin
			for err == nil {
				err = pairs(al, s, size, few)
				mine += few
				if stop.Load() {
					break
				}
			}
			failures[i] = err
			total.Add(mine)
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	time.Sleep(d)
	stop.Store(true)
	done.Wait()
	elapsed := time.Since(start)
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return map[string]float64{"rate": float64(total.Load()) / (elapsed.Seconds() * 1e6)}, nil
}
