package trace

import "github.com/ashlar-go/ashlar/driver"

// An addressState is the state of the block at an address after the entries so far.
type addressState uint8

const (
	addressUnseen  addressState = iota // nothing yet: an empty slot
	addressLive                        // a block is allocated
	addressPending                     // its free was requested and has not completed
	addressFree                        // the last block there is gone
)

// An address is the last block seen at ptr.
type address struct {
	ptr   driver.Pointer
	size  int64 // requested bytes
	block uint32
	state addressState
}

// addresses finds the block at an address. It is a hash table with linear probing that never removes an address: a free
// of an address that was never seen belongs to a block from before the recording, but a free of one that was seen and
// is free is an anomaly. A slot has 24 bytes; at least a quarter of the slots are empty.
type addresses struct {
	slots []address // a power of two
	n     int       // in use
	shift uint      // 64 minus the bits of an index
}

// at returns the slot of p, in state addressUnseen if p is new. The caller must set the state of a new slot. The
// pointer is valid until the next call.
func (a *addresses) at(p driver.Pointer) *address {
	if a.n*4 >= len(a.slots)*3 {
		a.grow()
	}
	s := a.probe(p)
	if s.state == addressUnseen {
		s.ptr = p
		a.n++
	}
	return s
}

// probe returns the slot that holds p, or the empty one where p belongs.
func (a *addresses) probe(p driver.Pointer) *address {
	// Fibonacci hashing: addresses differ in their middle bits, and the top bits of the product depend on all of them.
	i := int(uint64(p) * 0x9e3779b97f4a7c15 >> a.shift)
	for mask := len(a.slots) - 1; ; i = (i + 1) & mask {
		if s := &a.slots[i]; s.state == addressUnseen || s.ptr == p {
			return s
		}
	}
}

func (a *addresses) grow() {
	old := a.slots
	if len(old) == 0 {
		a.slots, a.shift = make([]address, 1024), 64-10
		return
	}
	a.slots, a.shift = make([]address, 2*len(old)), a.shift-1
	for i := range old {
		if old[i].state != addressUnseen {
			*a.probe(old[i].ptr) = old[i]
		}
	}
}
