package collective

import (
	"net"
	"strconv"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
)

// DefaultTimeout is the Timeout of a Config that sets none: PyTorch's for NCCL.
const DefaultTimeout = 10 * time.Minute

// maxID is the maximum length of Config.ID, in bytes.
const maxID = 256

// The backends of a Config.
const (
	NCCL = "nccl" // NVIDIA's library; every rank is on a CUDA device of its own
	Host = "host" // over TCP, for any devices; contents of other devices than the host are copied through its memory
)

// A Config says which rank this process is, of how many, and the address at which the ranks connect. FromEnv makes one
// from the variables that launchers set.
type Config struct {
	Rank, Size int // this rank's number, from 0, and the number of ranks

	// LocalRank is the rank's number among the LocalSize ranks of its machine, for choosing a device. LocalSize is 0 if
	// they are unknown.
	LocalRank, LocalSize int
	Node                 int // the number of its machine
	Restart              int // how often the launcher has restarted the ranks; for information

	// Address is the host:port at which rank 0 listens and the others connect; it is the same for all ranks. Rank 0
	// uses the first free one of Ports consecutive ports from Address's on, and the others try them all; 0 is 1. A
	// single rank needs no address.
	Address string
	Ports   int

	// Listen is the address, or the name of it, at which this rank listens. The default is Address's host for rank 0,
	// and the address that connects to rank 0 for the others. Set it where this machine does not have that address,
	// as behind a proxy, or knows it by another name. "0.0.0.0" and "::" are all interfaces.
	Listen string

	// ID names the run, in at most 256 bytes. Ranks of other runs are refused.
	ID string

	// Secret, or the contents of SecretFile without white space at the ends, is known to all ranks and to no other
	// program: 16 bytes at least, better 32 random ones. Each connection proves at both ends that it knows the secret
	// and the ID, before anything else is sent. Without a secret the ID alone is proved, which others may guess, so
	// that Join then accepts loopback addresses only, unless TrustedNetwork is set. The Config of a Communicator has no
	// Secret.
	Secret     Secret
	SecretFile string

	// Encrypt encrypts the connections, with TLS 1.3 and keys of this run; a secret is needed. All ranks must agree.
	// Without it, an attacker on the way of packets can read and change what ranks send. NCCL makes connections of
	// its own, which it neither authenticates nor encrypts.
	Encrypt bool

	// TrustedNetwork says that no other program reaches the ranks' ports, or that all of them are trusted.
	TrustedNetwork bool

	// Timeout is the maximum time that Join waits for the other ranks, that a rank may be silent before it is lost, and
	// that Close waits for the others. A rank sends many signs of life in that time, whatever its program does. A rank
	// that dies is noticed at once, unless its whole machine fails. For silence rank 0's Timeout applies to all. Zero
	// is DefaultTimeout.
	Timeout time.Duration

	// Backend is NCCL, Host or "": then it is NCCL if every rank is on a CUDA device, and else Host. It must be the
	// same for all ranks.
	Backend string

	// Libraries are paths of NCCL to try before the default ones.
	Libraries []string
}

func (c Config) timeout() time.Duration {
	if c.Timeout == 0 {
		return DefaultTimeout
	}
	return c.Timeout
}

// check returns an error for an invalid configuration. It does not check the address.
func (c Config) check() error {
	wrong := func(format string, args ...any) error { return refuse(ErrConfig, "Config", format, args...) }
	switch {
	case c.Size < 1 || c.Size > rendezvous.MaxSize:
		return wrong("a size of %d ranks: want 1 to %d", c.Size, rendezvous.MaxSize)
	case c.Rank < 0 || c.Rank >= c.Size:
		return wrong("rank %d of %d: want 0 to %d", c.Rank, c.Size, c.Size-1)
	case c.Timeout < 0:
		return wrong("a timeout of %v", c.Timeout)
	case len(c.ID) > maxID:
		return wrong("an ID of %d bytes: want at most %d", len(c.ID), maxID)
	case c.Backend != "" && c.Backend != NCCL && c.Backend != Host:
		return wrong("backend %q: want %q, %q or none", c.Backend, NCCL, Host)
	}
	return nil
}

// checkAddress returns an error for an invalid address.
func (c Config) checkAddress() error {
	wrong := func(format string, args ...any) error { return refuse(ErrConfig, "Config", format, args...) }
	if c.Size == 1 {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return wrong("address %q: want host:port of rank 0", c.Address)
	}
	first, err := strconv.Atoi(port)
	last := first + max(c.Ports, 1) - 1
	if err != nil || host == "" || first < 1 || last > maxPort || c.Ports < 0 {
		return wrong("address %q with %d ports: want a host and ports from 1 to %d", c.Address, c.Ports, maxPort)
	}
	return nil
}
