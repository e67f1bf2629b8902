package pinned_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// Page-locking memory takes the driver a long time. Requests for cached blocks and frees do not wait for it.
func TestAllocHostDelaysNoOtherCall(t *testing.T) {
	d, entered, leave := newDevice(), make(chan struct{}), make(chan struct{})
	a := open(t, intercept.Wrap(d, func(c intercept.Call, next func() error) error {
		if c.Kind == intercept.AllocHost {
			entered <- struct{}{}
			<-leave
		}
		return next()
	}), pinned.Config{})
	s := d.stream(t)
	var wg sync.WaitGroup
	wg.Go(func() { a.Free(alloc(t, a, 64)) })
	<-entered
	leave <- struct{}{}
	wg.Wait()

	wg.Go(func() { a.Free(alloc(t, a, mib)) })
	<-entered
	b := alloc(t, a, 64) // these return while AllocHost does not
	piece(t, a, b, s)
	a.Free(b)
	b = alloc(t, a, 64)
	if _, ok := a.Find(a.Bytes(b)); !ok {
		t.Error("a live block is not found")
	}
	a.Free(b)
	if err := a.EmptyCache(); err != nil {
		t.Error(err)
	}
	want(t, a, "num_host_alloc", 1, "num_host_free", 1)
	leave <- struct{}{}
	wg.Wait()

	// Memory that comes after Close goes back.
	var err error
	wg.Go(func() { _, err = a.Alloc(2 * mib) })
	<-entered
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	leave <- struct{}{}
	wg.Wait()
	if !errors.Is(err, pinned.ErrClosed) {
		t.Errorf("Alloc during Close: %v", err)
	}
	d.empty(t)
}

// Goroutines share an allocator and streams. Each writes its own number into its blocks, copies them to the device and
// checks the copies. The host device does the copies concurrently.
func TestConcurrent(t *testing.T) {
	const workers, rounds = 8, 150
	for name, cfg := range map[string]pinned.Config{
		"polled":     {MaxRoundThreshold: 8 << 10, MaxCachedSize: 48 << 10},
		"background": {BackgroundThreads: true, After: time.After, ReserveSegment: 128 << 10},
		"registered": {HostRegister: true, RegisterThreads: 4},
	} {
		t.Run(name, func(t *testing.T) {
			d := drivertest.OpenDevice(t, "host")
			a := open(t, d, cfg)
			streams := make([]driver.Stream, 3)
			for i := range streams {
				streams[i] = drivertest.NewStream(t, d)
			}
			var wg sync.WaitGroup
			for id := range workers {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(id), 0))
					on, err := d.Alloc(64 << 10)
					if err != nil {
						t.Error(err)
						return
					}
					for range rounds {
						size := 1 + rng.Int64N(64<<10)
						s := streams[rng.IntN(len(streams))]
						b, err := a.Alloc(size)
						if err != nil {
							t.Error(err)
							return
						}
						fill(a.Bytes(b), byte(id))
						if err := d.Pinned().CopyInAsync(s, on, a.Bytes(b)); err != nil {
							t.Error(err)
						}
						if err := a.RecordStream(b, s); err != nil {
							t.Error(err)
						}
						a.Free(b)
						got := make([]byte, size)
						if err := s.CopyOut(got, on); err != nil {
							t.Error(err)
						}
						if slices.ContainsFunc(got, func(c byte) bool { return c != byte(id) }) {
							t.Errorf("goroutine %d's block was overwritten while the device read it", id)
							return
						}
						if rng.IntN(20) == 0 {
							if err := a.EmptyCache(); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			wg.Wait()
			st := a.Stats()
			if st.ActiveRequests.Allocated != workers*rounds || st.ActiveRequests.Peak > workers*rounds {
				t.Errorf("%d requests are counted, want %d", st.ActiveRequests.Allocated, workers*rounds)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if err := a.Err(); err != nil {
				t.Error(err)
			}
			if st := a.Stats(); st.ActiveRequests.Current != 0 || st.Allocations.Current != 0 {
				t.Errorf("after Close: %+v", st)
			}
		})
	}
}
