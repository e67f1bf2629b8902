//go:build gpu && linux && (amd64 || arm64) && !nocuda

package nccl

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/dtype"
)

var libraries = flag.String("libraries", "", "paths of NCCL to try first, separated by commas")

func options() Options {
	var o Options
	if *libraries != "" {
		o.Libraries = strings.Split(*libraries, ",")
	}
	return o
}

// A rank is one GPU of this process, with a stream and two blocks.
type rank struct {
	testing.TB
	n, size  int
	dev      driver.Device
	stream   driver.Stream
	src, dst driver.Pointer
	c        comm.Transport
}

// openRanks opens every GPU there is, with blocks of so many bytes.
func openRanks(tb testing.TB, block int64) []*rank {
	tb.Helper()
	list, err := driver.Lookup("cuda").Devices()
	if err != nil {
		tb.Fatal(err)
	}
	ranks := make([]*rank, len(list))
	for i := range ranks {
		r := &rank{TB: tb, n: i, size: len(list)}
		if r.dev, err = driver.Open(fmt.Sprintf("cuda:%d", i)); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { r.ok(r.dev.Close()) })
		r.stream, err = r.dev.NewStream(driver.StreamOptions{})
		r.ok(err)
		if block > 0 {
			r.src, err = r.dev.Alloc(block)
			r.ok(err)
			r.dst, err = r.dev.Alloc(block)
			r.ok(err)
		}
		ranks[i] = r
	}
	return ranks
}

// each runs f for every rank, on goroutines.
func each(ranks []*rank, f func(r *rank)) {
	var wg sync.WaitGroup
	for _, r := range ranks {
		wg.Go(func() { f(r) })
	}
	wg.Wait()
}

// connect makes the ranks' transports, which are closed at the end unless they were aborted.
func connect(ranks []*rank) {
	id, err := NewID(options())
	ranks[0].ok(err)
	each(ranks, func(r *rank) {
		var err error
		r.c, err = New(context.Background(), r.dev, options(), id, r.n, r.size)
		r.ok(err)
	})
	ranks[0].Cleanup(func() { each(ranks, func(r *rank) { r.ok(r.c.Close()) }) })
}

func (r *rank) ok(err error) {
	r.Helper()
	if err != nil {
		r.Errorf("rank %d: %v", r.n, err)
	}
}

// number is element i of rank n's operand, small enough that every type has the results of all operations exactly: eight
// at most, and fractions of four.
func number(op comm.Op, n, i int) float64 {
	v := (7*i + 3*n + i/5) % 3
	if op == comm.Prod {
		v = 1 + v%2
	}
	return float64(v)
}

// combined is element i of op over the ranks.
func combined(op comm.Op, d dtype.DType, size, i int) float64 {
	v := number(op, 0, i)
	for n := 1; n < size; n++ {
		w := number(op, n, i)
		switch op {
		case comm.Sum, comm.Avg:
			v += w
		case comm.Prod:
			v *= w
		case comm.Max:
			v = max(v, w)
		case comm.Min:
			v = min(v, w)
		}
	}
	if op == comm.Avg {
		if v /= float64(size); d.IsInteger() {
			v = float64(int(v))
		}
	}
	return v
}

// elements returns n elements of a type in their memory format.
func elements(d dtype.DType, n int, f func(i int) float64) []byte {
	numbers := make([]float64, n)
	for i := range numbers {
		numbers[i] = f(i)
	}
	b := make([]byte, n*d.Size())
	if n > 0 {
		dtype.Convert(b, d, bytesOf(numbers), dtype.Float64)
	}
	return b
}

// run queues a call of one rank on the content of src, and compares the result.
func (r *rank) run(c comm.Call, src, want []byte) {
	r.Helper()
	c.Src, c.Dst = comm.Operand{Ptr: r.src}, comm.Operand{Ptr: r.dst}
	if c.Kind == comm.Broadcast && c.Peer == r.n { // the same memory there
		c.Dst = c.Src
	}
	r.ok(r.stream.CopyIn(r.src, src))
	r.ok(r.stream.Fill(r.dst, 0xa5, int64(len(want))+1))
	r.ok(r.c.Queue(r.stream, c))
	got := make([]byte, len(want)+1)
	r.ok(r.stream.CopyOut(got, c.Dst.Ptr))
	if c.Dst.Ptr == r.dst && got[len(want)] != 0xa5 {
		r.Errorf("rank %d: %v of %v, %d elements: it wrote beyond the end", r.n, c.Kind, c.Type, c.N)
	}
	if !bytes.Equal(got[:len(want)], want) {
		r.Errorf("rank %d: %v (%v) of %v, %d elements: other values than expected", r.n, c.Kind, c.Op, c.Type, c.N)
	}
}

// TestGPUCollectives: every kind, operation and type, against values from Go.
func TestGPUCollectives(t *testing.T) {
	name, version, err := Find(options())
	if err != nil {
		t.Fatal(err)
	}
	ranks := openRanks(t, 1<<20*16*8+16)
	size := len(ranks)
	t.Logf("%s, NCCL %s, %d ranks", name, version, size)
	connect(ranks)
	for _, n := range []int{0, 1, 1021, 1 << 20} {
		for _, d := range dtype.All() {
			if _, ok := numbers[d]; ok {
				for op := comm.Sum; op <= comm.Avg; op++ {
					if n == 1<<20 && op != comm.Sum || op == comm.Avg && size&(size-1) != 0 {
						continue // thirds round
					}
					each(ranks, func(r *rank) {
						mine := func(n int) []byte { return elements(d, n, func(i int) float64 { return number(op, r.n, i) }) }
						r.run(comm.Call{Kind: comm.AllReduce, Op: op, Type: d, N: n}, mine(n),
							elements(d, n, func(i int) float64 { return combined(op, d, size, i) }))
						r.run(comm.Call{Kind: comm.ReduceScatter, Op: op, Type: d, N: n}, mine(n*size),
							elements(d, n, func(i int) float64 { return combined(op, d, size, r.n*n+i) }))
					})
				}
			}
			each(ranks, func(r *rank) {
				of := func(rank int) []byte { return elements(d, n, func(i int) float64 { return number(comm.Sum, rank, i) }) }
				var all []byte
				for i := range size {
					all = append(all, of(i)...)
				}
				r.run(comm.Call{Kind: comm.AllGather, Type: d, N: n}, of(r.n), all)
				r.run(comm.Call{Kind: comm.Broadcast, Type: d, N: n, Peer: size - 1}, of(r.n), of(size-1))
			})
		}
	}
	// In place.
	each(ranks, func(r *rank) {
		const n = 4099
		f := func(i int) float64 { return number(comm.Sum, r.n, i) }
		r.ok(r.stream.CopyIn(r.src, elements(dtype.Float32, n, f)))
		r.ok(r.c.Queue(r.stream, comm.Call{
			Kind: comm.AllReduce, Type: dtype.Float32, N: n, Src: comm.Operand{Ptr: r.src}, Dst: comm.Operand{Ptr: r.src},
		}))
		got := make([]byte, 4*n)
		r.ok(r.stream.CopyOut(got, r.src))
		want := elements(dtype.Float32, n, func(i int) float64 { return combined(comm.Sum, dtype.Float32, size, i) })
		if !bytes.Equal(got, want) {
			r.Errorf("rank %d: other values in place", r.n)
		}
		r.ok(r.c.Err())
	})
}

// TestGPURings: every rank sends to the next and receives from the previous one at the same time, several in a group,
// and passes on the data it received.
func TestGPURings(t *testing.T) {
	ranks := openRanks(t, 1<<22)
	connect(ranks)
	each(ranks, func(r *rank) {
		next, before := (r.n+1)%r.size, (r.n+r.size-1)%r.size
		const n = 100003
		one := elements(dtype.Uint8, n, func(i int) float64 { return float64((i + r.n) % 251) })
		r.ok(r.stream.CopyIn(r.src, one))
		for range r.size { // after which each has its own again
			half := driver.Pointer(n / 2)
			r.ok(r.c.Queue(r.stream,
				comm.Call{Kind: comm.Send, Type: dtype.Uint8, N: n / 2, Src: comm.Operand{Ptr: r.src}, Peer: next},
				comm.Call{Kind: comm.Send, Type: dtype.Uint8, N: n - n/2, Src: comm.Operand{Ptr: r.src + half}, Peer: next},
				comm.Call{Kind: comm.Recv, Type: dtype.Uint8, N: n / 2, Dst: comm.Operand{Ptr: r.dst}, Peer: before},
				comm.Call{Kind: comm.Recv, Type: dtype.Uint8, N: n - n/2, Dst: comm.Operand{Ptr: r.dst + half}, Peer: before}))
			r.ok(r.stream.Copy(r.src, r.dst, n))
		}
		got := make([]byte, n)
		r.ok(r.stream.CopyOut(got, r.src))
		if !bytes.Equal(got, one) {
			r.Errorf("rank %d: other bytes after a round", r.n)
		}
		first := make([]byte, n)
		r.ok(r.stream.CopyOut(first, r.dst))
		if !bytes.Equal(first, one) {
			r.Errorf("rank %d: other bytes received", r.n)
		}
	})
}

func reduce(r *rank) comm.Call {
	return comm.Call{
		Kind: comm.AllReduce, Type: dtype.Float32, N: 1 << 20, Src: comm.Operand{Ptr: r.src}, Dst: comm.Operand{Ptr: r.dst},
	}
}

// TestGPUAbort: one rank waits for the others, in its stream or, before they are connected, in Queue. Abort ends that.
func TestGPUAbort(t *testing.T) {
	for _, connected := range []bool{true, false} {
		t.Run(fmt.Sprintf("connected=%v", connected), func(t *testing.T) {
			ranks := openRanks(t, 1<<22)
			connect(ranks)
			if connected {
				each(ranks, func(r *rank) {
					r.ok(r.c.Queue(r.stream, reduce(r)))
					r.ok(r.stream.Sync(context.Background()))
				})
			}
			r := ranks[0]
			cause := errors.New("the others do not come")
			queued := make(chan error, 1)
			go func() { queued <- r.c.Queue(r.stream, reduce(r)) }()
			err := untilWaiting(r.c.(*transport), queued)
			if len(ranks) > 1 && err == nil { // the kernel waits
				m, e := r.stream.Mark()
				r.ok(e)
				if reached, e := r.stream.Reached(m); reached || e != nil {
					t.Errorf("an all-reduce of one rank is done: %v, %v", reached, e)
				}
			}
			r.c.Abort(cause)
			if err == errWaiting {
				if err := <-queued; !errors.Is(err, cause) {
					t.Errorf("Queue ended with %v", err)
				}
			}
			r.ok(r.stream.Sync(context.Background()))
			if err := r.c.Queue(r.stream, reduce(r)); !errors.Is(err, cause) {
				t.Errorf("Queue after Abort: %v", err)
			}
			each(ranks[1:], func(r *rank) { r.c.Abort(cause) })
		})
	}
}

var errWaiting = errors.New("Queue waits")

// untilWaiting returns Queue's result, or errWaiting once NCCL has been in progress for a while.
func untilWaiting(c *transport, queued <-chan error) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for range 500 {
		select {
		case err := <-queued:
			return err
		case <-ticker.C:
		}
	}
	return errWaiting
}

// TestGPUMissingRank: one more was to come.
func TestGPUMissingRank(t *testing.T) {
	ranks := openRanks(t, 0)
	id, err := NewID(options())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	each(ranks, func(r *rank) {
		_, err := New(ctx, r.dev, options(), id, r.n, r.size+1)
		if !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("rank %d of %d: %v", r.n, r.size+1, err)
		}
	})
}

// BenchmarkGPUAllReduce is an all-reduce of 1 GiB of float32 in place, by the device's clock: the median of b.N, each from
// its stream's start of it to the end. Of testdata/allreduce.py too.
func BenchmarkGPUAllReduce(b *testing.B) {
	const size = 1 << 30
	ranks := openRanks(b, size)
	connect(ranks)
	medians := make([]time.Duration, len(ranks))
	b.ResetTimer()
	each(ranks, func(r *rank) {
		c := reduce(r)
		c.N, c.Src = size/4, c.Dst
		r.ok(r.stream.Fill(r.dst, 0, size))
		for range 5 {
			r.ok(r.c.Queue(r.stream, c))
		}
		r.ok(r.stream.Sync(context.Background()))
		timing := r.dev.Timing()
		stamps := make([]driver.Stamp, b.N+1)
		for i := range stamps {
			if i > 0 {
				r.ok(r.c.Queue(r.stream, c))
			}
			var err error
			stamps[i], err = timing.Stamp(r.stream)
			r.ok(err)
		}
		r.ok(r.stream.Sync(context.Background()))
		times := make([]time.Duration, b.N)
		for i := range times {
			var err error
			times[i], err = timing.Elapsed(stamps[i], stamps[i+1])
			r.ok(err)
		}
		slices.Sort(times)
		medians[r.n] = times[len(times)/2]
	})
	b.StopTimer()
	t := slices.Max(medians).Seconds()
	n := float64(len(ranks))
	b.ReportMetric(0, "ns/op") // the host's, with what was not timed
	b.ReportMetric(t*1e3, "ms")
	b.ReportMetric(size/t/1e9, "algbw-GB/s")
	b.ReportMetric(size/t/1e9*2*(n-1)/n, "busbw-GB/s")
}

// BenchmarkGPUQueue measures the host time of one call with few elements, one call after the other.
func BenchmarkGPUQueue(b *testing.B) {
	ranks := openRanks(b, 1<<22)
	connect(ranks)
	each(ranks, func(r *rank) {
		c := reduce(r)
		c.N = 256
		for range 5 {
			r.ok(r.c.Queue(r.stream, c))
		}
		r.ok(r.stream.Sync(context.Background()))
	})
	b.ResetTimer()
	each(ranks, func(r *rank) {
		c := reduce(r)
		c.N = 256
		for range b.N {
			r.ok(r.c.Queue(r.stream, c))
		}
		r.ok(r.stream.Sync(context.Background()))
	})
}

func bytesOf(numbers []float64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(numbers))), 8*len(numbers))
}
