//go:build linux && (amd64 || arm64) && !nocuda

package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// A rig is one rank of a communicator of the fake, which simulates the other ranks.
type rig struct {
	testing.TB
	f *fakeNCCL
	d *fakeGPU
	t *transport
	s *fakeStream
}

func newGPU(f *fakeNCCL) *fakeGPU { return &fakeGPU{f: f, name: "cuda", compute: 90} }

// newRig makes rank 1 of 3; change changes the fake first.
func newRig(tb testing.TB, change func(*fakeNCCL)) *rig {
	tb.Helper()
	f := newFake(tb)
	if change != nil {
		change(f)
	}
	for rank := range 2 {
		f.comms[uintptr(1+rank)] = &fakeComm{id: someID(1), rank: 2 * rank, size: 3, given: commDestroy}
	}
	d := newGPU(f)
	s := d.stream()
	t, err := f.library(tb).connect(context.Background(), d, someID(1), 1, 3)
	if err != nil {
		tb.Fatal(err)
	}
	f.calls()
	tb.Cleanup(func() { t.Abort(errors.New("the test is over")) })
	return &rig{tb, f, d, t, s}
}

// wantCalls fails unless just these calls were made since it was asked last.
func (r *rig) wantCalls(want ...string) {
	r.Helper()
	if got := r.f.calls(); !slices.Equal(got, want) {
		r.Errorf("NCCL was called:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func operand(p driver.Pointer) comm.Operand { return comm.Operand{Ptr: p} }

// sum is an all-reduce of ten float32.
func sum() comm.Call {
	return comm.Call{Kind: comm.AllReduce, Type: dtype.Float32, Dst: operand(0x2000), Src: operand(0x1000), N: 10}
}

func TestRanksMeet(t *testing.T) {
	f := newFake(t)
	l := f.library(t)
	const size = 3
	var all [size]*transport
	var d [size]*fakeGPU
	var wg sync.WaitGroup
	for rank := range size {
		d[rank] = newGPU(f)
		wg.Go(func() {
			var err error
			if all[rank], err = l.connect(context.Background(), d[rank], someID(5), rank, size); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for _, c := range f.comms {
		seen[c.rank] = true
		want := config{size: uint64(unsafe.Sizeof(config{})), magic: 0xcafebeef, version: 21400, next: -1 << 31}
		if c.id != someID(5) || c.size != size || c.config != want {
			t.Errorf("NCCL got rank %d of %d, configuration %+v and ID %x", c.rank, c.size, c.config, c.id)
		}
	}
	if len(seen) != size {
		t.Errorf("ranks %v came, want %d", seen, size)
	}
	for rank, c := range all {
		wg.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if !d[rank].streams[0].closed {
				t.Error("the stream for calls without work is still open")
			}
		})
	}
	wg.Wait()
}

func TestARankThatNeverComes(t *testing.T) {
	f := newFake(t)
	l := f.library(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("rank 0 is late")
	go func() {
		f.waitFor(commInitRankConfig)
		cancel(cause)
	}()
	d := newGPU(f)
	_, err := l.connect(ctx, d, someID(5), 1, 2)
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "rank 1 of 2") {
		t.Errorf("error %v, want one of rank 1 of 2 that wraps the context's cause", err)
	}
	if got := f.calls(); !slices.Equal(got, []string{"ncclCommInitRankConfig 1 of 2", "ncclCommAbort"}) {
		t.Errorf("NCCL was called: %q", got)
	}
	if !d.streams[0].closed {
		t.Error("the stream for calls without work is still open")
	}
	if _, err := l.connect(ctx, d, someID(5), 1, 2); !errors.Is(err, cause) || len(f.calls()) > 0 {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestAnInitThatFails(t *testing.T) {
	for _, c := range []struct {
		name string
		code result
		want []string
	}{
		{"at once", 4, []string{"ncclCommInitRankConfig 0 of 1"}},
		{"later", 2, []string{"ncclCommInitRankConfig 0 of 1", "ncclCommAbort"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.results[commInitRankConfig] = c.code
			_, err := f.library(t).connect(context.Background(), newGPU(f), someID(5), 0, 1)
			want := &Error{"ncclCommInitRankConfig", int(c.code), "invalid argument (said the fake)", "what went wrong last"}
			if got, ok := err.(*Error); !ok || *got != *want {
				t.Errorf("error %#v, want %#v", err, want)
			}
			if got := f.calls(); !slices.Equal(got, c.want) {
				t.Errorf("NCCL was called: %q", got)
			}
		})
	}
}

func TestCallsOfAGroup(t *testing.T) {
	r := newRig(t, nil)
	operands := func(c comm.Call) comm.Call {
		c.Dst, c.Src = operand(0x2000), operand(0x1000)
		return c
	}
	err := r.t.Queue(r.s,
		operands(comm.Call{Kind: comm.AllReduce, Op: comm.Avg, Type: dtype.BFloat16, N: 10}),
		operands(comm.Call{Kind: comm.ReduceScatter, Op: comm.Min, Type: dtype.Int64, N: 11}),
		operands(comm.Call{Kind: comm.Broadcast, Type: dtype.Int16, N: 12, Peer: 2}),
		operands(comm.Call{Kind: comm.Broadcast, Type: dtype.Int16, N: 12, Peer: 1}),
		operands(comm.Call{Kind: comm.AllGather, Type: dtype.Complex128, N: 13}),
		operands(comm.Call{Kind: comm.Send, Type: dtype.Bool, N: 0, Peer: 2}),
		operands(comm.Call{Kind: comm.Send, Type: dtype.Bool, N: 14, Peer: 2}),
		operands(comm.Call{Kind: comm.Recv, Type: dtype.Float32, N: 15, Peer: 0}))
	if err != nil {
		t.Fatal(err)
	}
	r.wantCalls(
		"ncclGroupStart",
		"ncclAllReduce 0x1000 to 0x2000, 10 of type 9, op 4, stream 0x57000",
		"ncclReduceScatter 0x1000 to 0x2000, 11 of type 4, op 3, stream 0x57000",
		"ncclBroadcast 0x1000 to 0x2000, 24 of type 1 from rank 2, stream 0x57000",
		"ncclBroadcast 0x1000 to 0x2000, 24 of type 1 from rank 1, stream 0x57000",
		"ncclAllGather 0x1000 to 0x2000, 208 of type 1, stream 0x57000",
		"ncclSend 0x1000, 14 of type 1, rank 2, stream 0x57000",
		"ncclRecv 0x2000, 60 of type 1, rank 0, stream 0x57000",
		"ncclGroupEnd",
	)
	kernels := r.s.took()
	if len(kernels) != 2 {
		t.Fatalf("%d pieces of work on the stream, want the group and what stands after it", len(kernels))
	}
	// 3 ranks: a reduce-scatter reads, and an all-gather writes, three parts.
	wantReads := []driver.Range{{Ptr: 0x1000, Size: 20}, {Ptr: 0x1000, Size: 264}, {Ptr: 0x1000, Size: 24}, {Ptr: 0x1000, Size: 208}, {Ptr: 0x1000, Size: 14}}
	wantWrites := []driver.Range{{Ptr: 0x2000, Size: 20}, {Ptr: 0x2000, Size: 88}, {Ptr: 0x2000, Size: 24}, {Ptr: 0x2000, Size: 24}, {Ptr: 0x2000, Size: 624}, {Ptr: 0x2000, Size: 60}}
	if got := kernels[0].Reads; !slices.Equal(got, wantReads) {
		t.Errorf("reads %v, want %v", got, wantReads)
	}
	if got := kernels[0].Writes; !slices.Equal(got, wantWrites) {
		t.Errorf("writes %v, want %v", got, wantWrites)
	}
}

func TestNothingToDoIsNoCall(t *testing.T) {
	r := newRig(t, nil)
	none := sum()
	none.N, none.Dst, none.Src = 0, comm.Operand{}, comm.Operand{}
	if err := r.t.Queue(r.s, none); err != nil {
		t.Error(err)
	}
	if err := r.t.Queue(r.s); err != nil {
		t.Error(err)
	}
	r.wantCalls()
	cause := errors.New("enough")
	r.t.Abort(cause)
	if err := r.t.Queue(r.s, none); !errors.Is(err, cause) {
		t.Errorf("after Abort: %v", err)
	}
}

// TestTypes: operations that compute take exactly NCCL's types, with NCCL's numbers; operations that only move data
// take any type.
func TestTypes(t *testing.T) {
	numbers := map[dtype.DType]int{
		dtype.Int8: 0, dtype.Uint8: 1, dtype.Int32: 2, dtype.Uint32: 3, dtype.Int64: 4, dtype.Uint64: 5, dtype.Float16: 6,
		dtype.Float32: 7, dtype.Float64: 8, dtype.BFloat16: 9, dtype.Float8E4M3FN: 10, dtype.Float8E5M2: 11,
	}
	r := newRig(t, nil)
	for _, d := range dtype.All() {
		for _, kind := range []comm.Kind{comm.AllReduce, comm.ReduceScatter} {
			c := sum()
			c.Kind, c.Type = kind, d
			err := r.t.Queue(r.s, sum(), c)
			calls := r.f.calls()
			number, ok := numbers[d]
			if !ok {
				if !errors.Is(err, driver.ErrUnsupported) || len(calls) > 0 || !strings.Contains(err.Error(), d.String()) {
					t.Errorf("%v of %v: error %v after calls %q, want ErrUnsupported and none", kind, d, err, calls)
				}
			} else if err != nil || len(calls) != 4 || !strings.Contains(calls[2], fmt.Sprintf(" 10 of type %d,", number)) {
				t.Errorf("%v of %v: error %v, calls %q", kind, d, err, calls)
			}
		}
		c := sum()
		c.Kind, c.Type = comm.AllGather, d
		err := r.t.Queue(r.s, c)
		want := fmt.Sprintf("ncclAllGather 0x1000 to 0x2000, %d of type 1, stream 0x57000", 10*d.Size())
		if calls := r.f.calls(); err != nil || len(calls) != 3 || calls[1] != want {
			t.Errorf("all-gather of %v: error %v, calls %q", d, err, calls)
		}
	}
	if err := r.t.Err(); err != nil {
		t.Errorf("a type that NCCL has not broke the transport: %v", err)
	}
	float8 := sum()
	float8.Type = dtype.Float8E5M2
	r.t.capability = 89
	if err := r.t.Queue(r.s, float8); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "8.9") {
		t.Errorf("8-bit floats on compute capability 8.9: %v", err)
	}
	r.t.capability, r.t.lib.version = 90, 22304
	if err := r.t.Queue(r.s, float8); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "2.23.4 is older than 2.24.0") {
		t.Errorf("8-bit floats with NCCL 2.23.4: %v", err)
	}
}

// TestQueueWaitsUntilTheStreamHasIt: and only then lets marks count.
func TestQueueWaitsUntilTheStreamHasIt(t *testing.T) {
	r := newRig(t, func(f *fakeNCCL) { f.hold[groupEnd] = true })
	done := make(chan error)
	go func() { done <- r.t.Queue(r.s, sum()) }()
	r.f.waitFor(groupEnd)
	if got := len(r.s.took()); got != 1 { // and the stream's order is free during the wait
		t.Errorf("%d pieces of work on the stream before NCCL was done, want 1", got)
	}
	select {
	case err := <-done:
		t.Errorf("Queue returned %v while NCCL was not done", err)
	default:
	}
	r.f.release(groupEnd)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := len(r.s.took()); got != 1 {
		t.Errorf("%d pieces of work on the stream after NCCL was done, want 1", got)
	}
	r.f.set(func() { r.f.polls = 0 })
	if err := r.t.Queue(r.s, sum()); err != nil {
		t.Error(err)
	}
	if got := len(r.s.took()); got != 1 {
		t.Errorf("%d pieces of work on the stream of a group that was done at once, want 1", got)
	}
}

func TestWhatNCCLFindsWrong(t *testing.T) {
	failure := func(call string, code int) *Error {
		return &Error{call, code, "invalid argument (said the fake)", "what went wrong last"}
	}
	for _, c := range []struct {
		name   string
		symbol symbol
		code   result
		want   *Error
		calls  string
	}{
		{"a call", allReduce, 4, failure("ncclAllReduce", 4), "ncclGroupStart ncclAllReduce ncclGroupEnd"},
		{"the start of a group", groupStart, 3, failure("ncclGroupStart", 3), "ncclGroupStart"},
		{"later", groupEnd, 6, failure("ncclGroupEnd", 6), "ncclGroupStart ncclAllReduce ncclAllReduce ncclGroupEnd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(f *fakeNCCL) { f.results[c.symbol] = c.code })
			err := r.t.Queue(r.s, sum(), sum())
			if got, ok := err.(*Error); !ok || *got != *c.want {
				t.Errorf("error %v, want %v", err, c.want)
			}
			var names []string
			for _, call := range r.f.calls() {
				names = append(names, strings.Fields(call)[0])
			}
			if got := strings.Join(names, " "); got != c.calls {
				t.Errorf("calls %s, want %s", got, c.calls)
			}
			if r.t.Err() != err {
				t.Errorf("Err is %v, want what Queue found", r.t.Err())
			}
			r.f.set(func() { r.f.results[c.symbol] = 5 })
			again := r.t.Queue(r.s, sum())
			if e, ok := again.(*Error); !ok || e.Code != 5 || r.t.Err() != err {
				t.Errorf("the next error is %v, and Err then %v, want what was found first", again, r.t.Err())
			}
			if c.symbol == groupStart {
				r.f.set(func() { clear(r.f.groups) })
			}
		})
	}
	if got := failure("ncclAllReduce", 4).Error(); got != "ncclAllReduce: invalid argument (said the fake) (4): what went wrong last" {
		t.Errorf("the text is %q", got)
	}
}

func TestErrAsksNCCL(t *testing.T) {
	r := newRig(t, nil)
	if err := r.t.Err(); err != nil {
		t.Errorf("of a sound transport: %v", err)
	}
	r.f.set(func() { r.f.comms[r.t.handle].state = 6 })
	var e *Error
	if err := r.t.Err(); !errors.As(err, &e) || e.Code != 6 || e.Call != "ncclCommGetAsyncError" {
		t.Errorf("after an error on another thread: %v", err)
	}
	first := r.t.Err()
	cause := errors.New("a peer is gone")
	r.t.Abort(cause)
	if err := r.t.Err(); !errors.Is(err, cause) || err == first {
		t.Errorf("after Abort: %v", err)
	}
}

func TestASymbolThatIsNotThere(t *testing.T) {
	r := newRig(t, func(f *fakeNCCL) { f.missing = send })
	if err := r.t.Queue(r.s, sum()); err != nil {
		t.Error(err)
	}
	c := sum()
	c.Kind = comm.Send
	r.f.calls()
	err := r.t.Queue(r.s, sum(), c)
	if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "ncclSend") {
		t.Errorf("a send without ncclSend: %v", err)
	}
	r.wantCalls()
	if err := r.t.Err(); err != nil {
		t.Errorf("a function that NCCL has not broke the transport: %v", err)
	}
}

func TestWhichLibrary(t *testing.T) {
	f := newFake(t)
	f.version = 21310
	if _, err := newLibrary("old.so", f.lookup); !errors.Is(err, driver.ErrUnsupported) ||
		!strings.Contains(err.Error(), "old.so is NCCL 2.13.10, want at least 2.14.0") {
		t.Errorf("an old NCCL: %v", err)
	}
	f.version = 2708
	if _, err := newLibrary("old.so", f.lookup); err == nil || !strings.Contains(err.Error(), "NCCL 2.7.8,") {
		t.Errorf("a very old NCCL: %v", err)
	}
	if _, err := openFirst("libnone.so.1", "/none/libnccl.so"); !errors.Is(err, ErrAbsent) ||
		!strings.Contains(err.Error(), "none of libnone.so.1, /none/libnccl.so was found") {
		t.Errorf("no NCCL: %v", err)
	}
	if _, err := openFirst("libc.so.6"); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "ncclGetVersion") {
		t.Errorf("a library that is not NCCL: %v", err)
	}
	f.version = 21400
	if id, err := f.library(t).newID(); err != nil || id != someID(7) {
		t.Errorf("ID %x, %v", id, err)
	}
	f.results[getUniqueID] = 2
	var e *Error
	if _, err := f.library(t).newID(); !errors.As(err, &e) || e.Call != "ncclGetUniqueId" || e.Code != 2 {
		t.Errorf("no ID: %v", err)
	}
}

func TestADeviceThatIsNotCUDA(t *testing.T) {
	f := newFake(t)
	_, err := f.library(t).connect(context.Background(), &fakeGPU{f: f, name: "sim"}, ID{}, 0, 1)
	if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "driver sim") {
		t.Errorf("error %v", err)
	}
	for _, rank := range []int{-1, 2} {
		func() {
			defer func() {
				if got, want := recover(), fmt.Sprintf("nccl: rank %d of 2", rank); got != want {
					t.Errorf("panic %v, want %q", got, want)
				}
			}()
			_, _ = f.library(t).connect(context.Background(), newGPU(f), ID{}, rank, 2)
		}()
	}
}
