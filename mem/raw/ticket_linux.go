package raw

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
)

// Ticket returns the ticket of p, the start of a live block from an ipc.Exporter. An ipc.Importer in another process
// opens the ticket, and the exporter counts it. The error matches driver.ErrUnsupported if the block is not from an
// ipc.Exporter. An address that is not the start of a live block panics.
func Ticket(p driver.Pointer) (ipc.Ticket, error) {
	l := holding("Ticket", p)
	if l.Ptr != p {
		panic(fmt.Sprintf("raw: Ticket of %#x, inside the block at %#x", uint64(p), uint64(l.Ptr)))
	}
	e, ok := l.From.(interface{ Ticket(mem.Block) ipc.Ticket })
	if !ok {
		return ipc.Ticket{}, lacks("Ticket", l.From, "serves no other processes")
	}
	return e.Ticket(l.Block), nil
}
