package memtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// A wrongPools is a sound allocator with something wrong about its private pools.
type wrongPools struct {
	*caching.Allocator
	bug poolBug
}

type poolBug string

const (
	ignoresScopes poolBug = "requests go to the default pool"
	keepsPools    poolBug = "a pool is reported that is gone"
	keepsBlocks   poolBug = "a block is reported that was freed"
	takesAnyLive  poolBug = "CheckPoolLive accepts all"
	failsToEmpty  poolBug = "EmptyCache fails"
	isUnsound     poolBug = "Check fails"
)

var errWrong = errors.New("something is wrong")

func (w wrongPools) BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool) {
	if w.bug == ignoresScopes {
		filter = func(driver.Stream) bool { return false }
	}
	w.Allocator.BeginAllocateToPool(id, filter)
}

func (w wrongPools) CheckPoolLive(id mem.PoolID, live []driver.Pointer) error {
	if w.bug == takesAnyLive || w.bug == ignoresScopes {
		return nil
	}
	return w.Allocator.CheckPoolLive(id, live)
}

func (w wrongPools) ReservedByPrivatePools() map[mem.PoolID]mem.StatArray {
	reserved := w.Allocator.ReservedByPrivatePools()
	if w.bug == keepsPools {
		reserved[mem.PoolID{99, 0}] = mem.StatArray{}
	}
	return reserved
}

func (w wrongPools) Stats() mem.Stats {
	s := w.Allocator.Stats()
	if w.bug == keepsBlocks {
		s.Allocation.All.Current++
	}
	return s
}

func (w wrongPools) EmptyCache() error {
	if w.bug == failsToEmpty {
		return errWrong
	}
	return w.Allocator.EmptyCache()
}

func (w wrongPools) Check() error {
	if w.bug == isUnsound {
		return errWrong
	}
	return w.Allocator.Check()
}

// Private pools that are wrong are found, and so is an allocator without any.
func TestWrongPools(t *testing.T) {
	for _, tt := range []struct {
		bug  poolBug
		text string // of the report
	}{
		{ignoresScopes, "is in a segment of pool"},
		{keepsPools, "pools at the end: 1, want 0"},
		{keepsBlocks, "live blocks at the end: 1, want 0"},
		{takesAnyLive, "a pool that was never used"},
		{takesAnyLive, "the live blocks of the second pool"},
		{failsToEmpty, errWrong.Error()},
		{isUnsound, errWrong.Error()},
	} {
		t.Run(string(tt.bug), func(t *testing.T) {
			scopes(t, tt.text, func(t testing.TB, dev driver.Device) mem.Allocator {
				return wrongPools{New(t, caching.New, dev, caching.Default()), tt.bug}
			})
		})
	}
	t.Run("none", func(t *testing.T) { scopes(t, "no private pools", poolWith(none)) })
}

// scopes runs the part of RunPools about scopes, whose report must contain text.
func scopes(t *testing.T, text string, newAllocator func(testing.TB, driver.Device) mem.Allocator) {
	t.Helper()
	cfg := Config{New: newAllocator}.with(sim.Options{Total: 1 << 30})
	found := try(t, func(t testing.TB) { checkPools(t, cfg, (*poolBench).scopes) })
	if !strings.Contains(found, text) {
		t.Errorf("the report lacks %q:\n%s", text, found)
	}
	if strings.Contains(found, "panic") {
		t.Errorf("RunPools panics:\n%s", found)
	}
}
