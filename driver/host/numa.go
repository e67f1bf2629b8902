package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/numa"
)

// A Node is a NUMA node: a part of the machine's memory and the processors near to it. See Options.Node.
type Node struct {
	ID     int
	CPUs   []int // ascending; empty on a node without processors
	Memory int64 // bytes; 0 on a node without memory
	Free   int64 // bytes not in use at the time of the call; page caches are in use
}

// Nodes returns the nodes of the machine, by number, with their processors and memory. The error matches
// driver.ErrUnsupported if the system reports none: on systems other than Linux, and in a kernel or a sandbox without
// NUMA.
func Nodes() ([]Node, error) {
	found, err := numa.Nodes(sys())
	if err != nil {
		return nil, &driver.Error{Call: "Nodes", Code: driver.ErrUnsupported, Detail: err.Error()}
	}
	nodes := make([]Node, len(found))
	for i, n := range found {
		nodes[i] = Node(n)
	}
	return nodes, nil
}

// NodeNear returns the node nearest to a device on the PCI bus, given its driver.Info.PCI: a GPU copies fastest from
// the memory of that node. The error matches driver.ErrUnsupported if the system does not know the node, for example
// because there is only one, and driver.ErrInvalid if pci is not an address.
func NodeNear(pci string) (int, error) { return nodeNear(sys(), pci) }

func nodeNear(sys fs.FS, pci string) (int, error) {
	node, err := numa.Near(sys, pci)
	if err == nil {
		return node, nil
	}
	code := driver.ErrUnsupported
	if errors.Is(err, fs.ErrInvalid) {
		code = driver.ErrInvalid
	}
	return 0, &driver.Error{Call: "NodeNear", Code: code, Detail: err.Error()}
}

// sys is the directory in which Linux describes the hardware. Other systems have none.
func sys() fs.FS { return os.DirFS("/sys") }

// A placement is the node of a device's memory. The zero value is any node.
type placement struct {
	node   int
	strict bool
	bind   func(pages []byte, node int, strict bool) error // nil: any
}

// place checks that memory can be placed as the options say, by placing a page with bind. It sets Total to the node's
// memory if it is 0.
func (o *Options) place(sys fs.FS, bind func(pages []byte, node int, strict bool) error) (placement, error) {
	fail := func(code error, format string, args ...any) (placement, error) {
		return placement{}, &driver.Error{Call: "Open", Code: code, Detail: fmt.Sprintf(format, args...)}
	}
	if o.Node == nil {
		if o.Strict {
			return fail(driver.ErrInvalid, "strict: no node is given, or the system does not know the nearest: "+
				"want node=NUMBER")
		}
		return placement{}, nil
	}
	pl := placement{node: *o.Node, strict: o.Strict, bind: bind}
	total := o.Total
	if nodes, err := numa.Nodes(sys); err == nil {
		at := slices.IndexFunc(nodes, func(n numa.Node) bool { return n.ID == pl.node })
		switch {
		case at < 0:
			return fail(driver.ErrInvalid, "node %d: want one of %s", pl.node, names(nodes))
		case nodes[at].Memory == 0:
			return fail(driver.ErrInvalid, "node %d has no memory of its own", pl.node)
		case total == 0:
			total = nodes[at].Memory
		}
	}
	p, err := mapMemory(pageSize)
	if err != nil {
		return fail(driver.ErrNoMemory, "a page to try node %d: %v", pl.node, err)
	}
	err = errors.Join(bind(view(p, pageSize), pl.node, pl.strict), unmapMemory(p, pageSize))
	switch {
	case err == nil:
		o.Total = total
		return pl, nil
	case errors.Is(err, syscall.EINVAL):
		return fail(driver.ErrInvalid, "node %d is not there, or is kept from this process by a cpuset: the system "+
			"says: %v",
			pl.node, err)
	case pl.strict || errors.Is(err, numa.ErrSystem):
		return fail(driver.ErrUnsupported, "memory of node %d: the system says: %v", pl.node, err)
	}
	return placement{}, nil
}

// names lists the nodes.
func names(nodes []numa.Node) string {
	var text []string
	for _, n := range nodes {
		text = append(text, fmt.Sprint(n.ID))
	}
	return "this machine's nodes " + strings.Join(text, ", ")
}

// mapMemory returns size bytes of fresh memory, placed.
func (pl placement) mapMemory(size int64) (driver.Pointer, error) {
	p, err := mapMemory(size)
	if err != nil {
		return 0, err
	}
	if err := pl.movePages(view(p, size)); err != nil {
		return 0, errors.Join(err, unmapMemory(p, size))
	}
	return p, nil
}

// movePages places untouched pages on their node. A preference that the system refuses is ignored.
func (pl placement) movePages(pages []byte) error {
	if pl.bind == nil {
		return nil
	}
	if err := pl.bind(pages, pl.node, pl.strict); err != nil && pl.strict {
		return fmt.Errorf("bind to node %d: %w", pl.node, err)
	}
	return nil
}

// String returns the text for Info().Name.
func (pl placement) String() string {
	switch {
	case pl.bind == nil:
		return ""
	case pl.strict:
		return fmt.Sprintf(", node %d only", pl.node)
	}
	return fmt.Sprintf(", node %d", pl.node)
}
