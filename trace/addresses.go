package trace

import "github.com/ashlar-go/ashlar/driver"

// An addressState is what the entries so far show about the block at an address.
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
	block uint32
	state addressState
}

// addresses finds the block at an address. It is a hash table with linear probing that never forgets an address: that
// an address was seen before is what tells an impossible entry from a history that starts late. It holds 16 bytes for
// each slot, of which at least a quarter are empty.
type addresses struct {
	slots []address // a power of two
	n     int       // in use
	shift uint      // 64 minus the bits of an index
}

// at returns the slot of p, unseen if p is new. The caller gives a new slot a state. The pointer is good until the next
// call.
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
	// Fibonacci hashing: addresses differ in their middle bits, and the product's top bits depend on them all.
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
