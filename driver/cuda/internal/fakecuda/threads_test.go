//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda_test

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// TestManyThreads uses two devices from sixteen threads at once: each finds its own bytes, and nothing is left.
func TestManyThreads(t *testing.T) {
	for _, pace := range []fakecuda.Pace{fakecuda.Late, fakecuda.AtOnce, fakecuda.Background} {
		m, l := open(t, fakecuda.Options{Pace: pace})
		var threads sync.WaitGroup
		for i := range 16 {
			threads.Go(func() {
				runtime.LockOSThread() // never unlocked: its current context ends with it
				for round := range 20 {
					if err := roundTrip(l, cu.Device(i%2), byte(16*round+i)); err != nil {
						t.Errorf("pace %d, thread %d, round %d: %v", pace, i, round, err)
						return
					}
				}
			})
		}
		threads.Wait()
		if leaks := m.Leaks(); leaks != nil {
			t.Errorf("leaks: %q", leaks)
		}
		if misuses := m.Misuses(); misuses != nil {
			t.Errorf("misuses: %q", misuses)
		}
		m.Close()
	}
}

// roundTrip brings bytes to a device and back over two streams, with everything made and given back.
func roundTrip(l *cu.Lib, d cu.Device, value byte) (err error) {
	ok := func(what string, r cu.Result) {
		if r != 0 && err == nil {
			err = fmt.Errorf("%s: %d", what, r)
		}
	}
	const n = 100_000
	ctx, r := l.PrimaryCtxRetain(d)
	ok("retain", r)
	ok("set", l.CtxSetCurrent(ctx))
	a, r := l.StreamCreate(cu.StreamNonBlocking, 0)
	ok("stream", r)
	b, r := l.StreamCreate(cu.StreamNonBlocking, 0)
	ok("stream", r)
	e, r := l.EventCreate(cu.EventDisableTiming)
	ok("event", r)
	p, r := l.MemAlloc(n)
	ok("alloc", r)
	host, r := l.MemHostAlloc(n, 0)
	ok("host", r)
	ok("set bytes", l.MemsetD8Async(p, value, n, a))
	ok("record", l.EventRecord(e, a))
	ok("wait", l.StreamWaitEvent(b, e))
	ok("copy out", l.MemcpyDtoHAsync(host, p, n, b))
	ok("copy in", l.MemcpyHtoDAsync(p, host, n, b))
	ok("record", l.EventRecord(e, b))
	for r = l.EventQuery(e); r == cu.NotReady; r = l.EventQuery(e) {
		runtime.Gosched()
	}
	ok("query", r)
	got := make([]byte, n)
	ok("read", l.MemcpyDtoH(got, p))
	if err == nil && !bytes.Equal(got, bytes.Repeat([]byte{value}, n)) {
		err = fmt.Errorf("the bytes are not those of this thread")
	}
	ok("free host", l.MemFreeHost(host))
	ok("free", l.MemFree(p))
	ok("drop event", l.EventDestroy(e))
	ok("drop stream", l.StreamDestroy(a))
	ok("drop stream", l.StreamDestroy(b))
	ok("release", l.PrimaryCtxRelease(d))
	return err
}
