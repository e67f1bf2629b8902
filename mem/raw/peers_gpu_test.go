//go:build gpu && linux

package raw_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// A GPU writes to what another's allocator has mapped before and after it became its peer. It needs two GPUs that are
// linked, and says so where there are none.
func TestGPUDefect12_EnablePeerReachesMappedMemory(t *testing.T) {
	owner, err := driver.Open("cuda:0")
	check(t, err)
	other, err := driver.Open("cuda:1")
	if err != nil {
		t.Fatalf("this test needs two GPUs: %v", err)
	}
	for name, open := range mapping {
		t.Run(name, func(t *testing.T) {
			a, err := open(owner)
			check(t, err)
			former := mem.SetCurrent(owner, a)
			before := alloc(t, owner, 4*mib)
			check(t, raw.EnablePeer(other, owner))
			after := alloc(t, owner, 40*mib)
			check(t, errors.Join(worksIn(t, owner, other, before, 4*mib), worksIn(t, owner, other, after, 40*mib)))
			raw.Delete(before)
			raw.Delete(after)
			check(t, raw.EmptyCache())
			again := alloc(t, owner, 24*mib)
			check(t, worksIn(t, owner, other, again, 24*mib))
			raw.Delete(again)
			mem.SetCurrent(owner, former)
			check(t, a.(interface{ Close() error }).Close())
		})
	}
	check(t, errors.Join(other.Close(), owner.Close()))
}
