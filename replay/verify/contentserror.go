package verify

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
)

// A ContentsError reports a block whose contents changed while it was allocated, or while another stream still used it.
type ContentsError struct {
	Op     int // the op that found it: the block's free or its completion; from Verify, the index of the trace entry
	Block  mem.Block
	Offset int64 // bytes from the start of the block
	Want   byte
	Got    byte
}

func (e *ContentsError) Error() string {
	return fmt.Sprintf("replay: op %d: block at %#x of %d bytes: byte %d is %#02x, %#02x was written: its memory was "+
		"given to another block",
		e.Op, e.Block.Ptr, e.Block.Size, e.Offset, e.Got, e.Want)
}
