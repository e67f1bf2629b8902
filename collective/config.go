package collective

import (
	"net"
	"strconv"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
)

// DefaultTimeout is Config.Timeout where that is zero: what PyTorch gives NCCL.
const DefaultTimeout = 10 * time.Minute

// The backends that a Config may name.
const (
	NCCL = "nccl" // NVIDIA's library: every rank is on a CUDA device of its own
	Host = "host" // this package's own, over TCP: any devices; what is not the host's memory is copied through it
)

// A Config says which of how many ranks this process is, and where they meet. FromEnv makes one of what a launcher set.
type Config struct {
	Rank, Size int // this rank's number, from 0, and how many there are

	// The rank's number among those of its machine, for choosing a device, and how many these are: 0 if that is not
	// known.
	LocalRank, LocalSize int
	Node                 int // the number of its machine
	Restart              int // how often the launcher has started the ranks again; for information

	// Address is host:port of rank 0's meeting point, for all ranks the same. Rank 0 listens there (on every interface,
	// unless the host is localhost or a loopback address), the others look for it there. Rank 0 takes the first of
	// Ports consecutive ports that is free, from that of Address on, and the others try them all; 0 is 1. One rank
	// alone needs no address. Connections are neither encrypted nor authenticated: use a network that you
	// trust.
	Address string
	Ports   int

	// ID names the run, in at most 256 bytes. Ranks of another run are turned away.
	ID string

	// Timeout is how long Join waits for the others, how long a rank may be silent before it is lost (each says that it
	// is alive many times in that span, whatever its program does; a rank that dies is noticed at once, unless its
	// whole machine does), and how long Close waits for the others. The silence is rank 0's Timeout for all. Zero is
	// DefaultTimeout.
	Timeout time.Duration

	// Backend is NCCL, Host or "": NCCL if every rank is on a CUDA device, else Host. All ranks say the same.
	Backend string

	// Libraries are where NCCL lies, if not where the system looks: paths of files.
	Libraries []string
}

func (c Config) timeout() time.Duration {
	if c.Timeout == 0 {
		return DefaultTimeout
	}
	return c.Timeout
}

// check says what of a configuration cannot be, but for the meeting point.
func (c Config) check() error {
	wrong := func(format string, args ...any) error { return refuse(ErrConfig, "Config", format, args...) }
	switch {
	case c.Size < 1 || c.Size > rendezvous.MaxSize:
		return wrong("a size of %d ranks: want 1 to %d", c.Size, rendezvous.MaxSize)
	case c.Rank < 0 || c.Rank >= c.Size:
		return wrong("rank %d of %d: want 0 to %d", c.Rank, c.Size, c.Size-1)
	case c.Timeout < 0:
		return wrong("a timeout of %v", c.Timeout)
	case len(c.ID) > rendezvous.MaxID:
		return wrong("an ID of %d bytes: want at most %d", len(c.ID), rendezvous.MaxID)
	case c.Backend != "" && c.Backend != NCCL && c.Backend != Host:
		return wrong("backend %q: want %q, %q or none", c.Backend, NCCL, Host)
	}
	return nil
}

// checkAddress says what of the meeting point cannot be.
func (c Config) checkAddress() error {
	wrong := func(format string, args ...any) error { return refuse(ErrConfig, "Config", format, args...) }
	if c.Size == 1 {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return wrong("address %q: want host:port of rank 0's meeting point", c.Address)
	}
	first, err := strconv.Atoi(port)
	last := first + max(c.Ports, 1) - 1
	if err != nil || host == "" || first < 1 || last > maxPort || c.Ports < 0 {
		return wrong("address %q with %d ports: want a host and ports from 1 to %d", c.Address, c.Ports, maxPort)
	}
	return nil
}
