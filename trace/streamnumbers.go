package trace

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/numbering"
)

// streamNumbers numbers streams. Drivers use small consecutive handles, so most are found without a search, even if
// streams alternate.
type streamNumbers struct {
	numbering.Numbering[uint64]
	first [64]uint32 // numbers of the first streams, plus 1
}

func (n *streamNumbers) Of(s driver.StreamID) uint32 {
	if int(s) >= len(n.first) {
		return n.Numbering.Of(uint64(s))
	}
	if n.first[s] == 0 {
		n.first[s] = n.Numbering.Of(uint64(s)) + 1
	}
	return n.first[s] - 1
}
