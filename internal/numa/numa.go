// Package numa knows a machine's nodes of memory: which there are, which one a PCI device is near to, on which one
// pages lie; and it binds pages to one.
//
// What there is it reads from the kernel's file system, in any tree with the same files:
//
//	devices/system/node/node*/cpulist, meminfo    the nodes
//	bus/pci/devices/ADDRESS/numa_node             near which one a device sits
//
// Pages are bound by mbind(2), before they are touched: the kernel finds memory for a page when it is first touched, by
// what holds for its addresses then. A binding belongs to the mapping, and of a memory file to the file: it outlives
// the mapping, and holds however the file's pages are first touched
// (Documentation/admin-guide/mm/numa_memory_policy.rst).
//
// It binds no goroutines and moves no pages. Linux only: elsewhere Bind and Where fail with ErrSystem.
package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Node is memory and the processors that are near to it.
type Node struct {
	ID     int
	CPUs   []int // ascending; none on a node of memory alone
	Memory int64 // bytes; 0 on a node of processors alone
	Free   int64 // bytes unused when it was read; page caches count as used
}

const nodeDir = "devices/system/node"

// Nodes reads the nodes of a tree such as os.DirFS("/sys"), by number. The error matches fs.ErrNotExist if the tree
// tells of none, as of a kernel that was built without.
func Nodes(sys fs.FS) ([]Node, error) {
	entries, err := fs.ReadDir(sys, nodeDir)
	if err != nil {
		return nil, fmt.Errorf("nodes of the machine: %w", err)
	}
	var nodes []Node
	for _, e := range entries {
		id, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "node"))
		if err != nil || id < 0 || e.Name() != "node"+strconv.Itoa(id) {
			continue
		}
		n, err := readNode(sys, id)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", id, err)
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("nodes of the machine: %w: none in %s", fs.ErrNotExist, nodeDir)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return a.ID - b.ID })
	return nodes, nil
}

func readNode(sys fs.FS, id int) (Node, error) {
	n := Node{ID: id}
	dir := path.Join(nodeDir, fmt.Sprintf("node%d", id))
	text, err := fs.ReadFile(sys, path.Join(dir, "cpulist"))
	if err != nil {
		return n, err
	}
	if n.CPUs, err = parseList(strings.TrimSpace(string(text))); err != nil {
		return n, fmt.Errorf("cpulist: %w", err)
	}
	if text, err = fs.ReadFile(sys, path.Join(dir, "meminfo")); err != nil {
		return n, err
	}
	if n.Memory, err = amount(string(text), "MemTotal:"); err != nil {
		return n, err
	}
	n.Free, err = amount(string(text), "MemFree:")
	return n, err
}

// amount returns the bytes in a line such as "Node 0 MemTotal:  24684084 kB".
func amount(meminfo, name string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) == 5 && f[2] == name && f[4] == "kB" {
			if kib, err := strconv.ParseInt(f[3], 10, 53); err == nil && kib >= 0 {
				return kib << 10, nil
			}
		}
	}
	return 0, fmt.Errorf("meminfo: no size after %s", name)
}

// mostCPUs bounds what a list may make: the kernel's own limit is 8192.
const mostCPUs = 1 << 16

// parseList reads "0-3,8,10-11", or nothing.
func parseList(text string) ([]int, error) {
	var list []int
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 31)
		to, err2 := strconv.ParseUint(last, 10, 31)
		if err != nil || err2 != nil || to < from || to >= mostCPUs || len(list) >= mostCPUs {
			return nil, fmt.Errorf("%q: want a number or two with a hyphen", part)
		}
		for cpu := from; cpu <= to; cpu++ {
			list = append(list, int(cpu))
		}
	}
	return list, nil
}

// ErrSystem is what Bind and Where fail with on other systems than Linux.
var ErrSystem = errors.New("no nodes on this system")

// ErrUnknown is matched by the error for a device whose node the kernel does not know.
var ErrUnknown = errors.New("near no node that the kernel knows of")

// Near returns the node that a PCI device sits at, by its address as in "0000:1b:00.0" or NVIDIA's "00000000:1B:00.0".
// The error matches ErrUnknown if the kernel does not know, as on most machines with one node, and fs.ErrNotExist if
// there is no such device.
func Near(sys fs.FS, pci string) (int, error) {
	domain, rest, ok := strings.Cut(strings.ToLower(pci), ":")
	number, err := strconv.ParseUint(domain, 16, 32)
	if !ok || err != nil || strings.ContainsAny(rest, "/\\") {
		return 0, fmt.Errorf("%q: %w: want a PCI address such as 0000:1b:00.0", pci, fs.ErrInvalid)
	}
	name := path.Join("bus/pci/devices", fmt.Sprintf("%04x:%s", number, rest), "numa_node")
	text, err := fs.ReadFile(sys, name)
	if err != nil {
		return 0, fmt.Errorf("node of the PCI device %s: %w", pci, err)
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return 0, fmt.Errorf("node of the PCI device %s: %w", pci, err)
	case node < 0:
		return 0, fmt.Errorf("the PCI device %s is %w", pci, ErrUnknown)
	}
	return node, nil
}
