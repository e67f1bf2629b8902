package bfc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A request that is not to be retried does not wait, though Config.Retry says so for others, and no segment is given
// back for it; one that is gets both.
func TestNoRetry(t *testing.T) {
	var made int
	b := newBench(t, bfc.Config{Limit: 8 * mib, Retry: func() (context.Context, context.CancelFunc) {
		made++
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, cancel
	}})
	cached := b.alloc(mib)
	b.Free(cached) // in a segment of 2 MiB, which is in the way of one of 8
	reserved := b.Stats().ReservedBytes.All.Current
	hasty := mem.AllocOptions{NoRetry: true}
	if _, err := b.AllocWith(b.s, 7*mib, hasty); !errors.Is(err, mem.ErrNoMemory) || made != 0 || b.Stats().ReservedBytes.All.Current != reserved {
		t.Errorf("%v; %d contexts made, %d bytes reserved, before %d", err, made, b.Stats().ReservedBytes.All.Current, reserved)
	}
	block, err := b.AllocWith(b.s, 7*mib, mem.AllocOptions{Logged: true})
	if err != nil || made != 0 {
		t.Fatalf("with retries: %v, %d contexts made", err, made)
	}
	if _, err := b.AllocWith(b.s, 7*mib, hasty); !errors.Is(err, mem.ErrNoMemory) || made != 0 {
		t.Errorf("%v; %d contexts made", err, made)
	}
	if _, err := b.AllocWith(b.s, 7*mib, mem.AllocOptions{}); !errors.Is(err, context.Canceled) || made != 1 {
		t.Errorf("without wishes: %v, %d contexts made", err, made)
	}
	b.Free(block)
	if again, err := b.AllocWith(b.s, 7*mib, hasty); err != nil || again.Ptr != block.Ptr {
		t.Errorf("from the cache: %+v, %v", again, err)
	} else {
		b.Free(again)
	}
}

// The bound on memory's stamps reaches the allocator through adaptors.
func TestFreedBeforeThroughAdaptors(t *testing.T) {
	var counter bfc.Counter
	b := newBench(t, bfc.Config{Limit: 2 * mib, NoCollect: true, Counter: &counter})
	a := layer.NewSizeTracker(layer.NewRetry(layer.NewCounter(b.Allocator), layer.RetryOptions{}), layer.SizeTrackerOptions{})
	first, err := a.Alloc(b.s, 2*mib)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(first) // number 1
	freed := func(count uint64) mem.AllocOptions {
		return mem.AllocOptions{FreedBefore: func() uint64 { return count }}
	}
	other, err := a.Alloc(b.s, mib)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(other) // number 2; the rest is of number 1
	rest, err := a.AllocWith(b.s, mib, freed(1))
	if err != nil || rest.Ptr != other.Ptr+driver.Pointer(mib) {
		t.Errorf("%+v, %v: want what lies behind %+v", rest, err, other)
	}
	if _, err := a.AllocWith(b.s, mib, freed(1)); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("memory that was freed too late: %v", err)
	}
	again, err := a.AllocWith(b.s, mib, freed(2))
	if err != nil || again.Ptr != other.Ptr {
		t.Errorf("%+v, %v: want %+v", again, err, other)
	}
	a.Free(rest)
	a.Free(again)
}
