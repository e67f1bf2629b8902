package numa

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// A machine with two sockets, memory that no processor is near to (such as CXL's), and a node of processors alone.
func machine() fstest.MapFS {
	info := func(node, total, free string) *fstest.MapFile {
		return file("Node " + node + " MemTotal:       " + total + " kB\nNode " + node + " MemFree:  " + free + " kB\n")
	}
	return fstest.MapFS{
		nodeDir + "/node0/cpulist":                file("0-2,8\n"),
		nodeDir + "/node0/meminfo":                info("0", "1024", "512"),
		nodeDir + "/node1/cpulist":                file("3-4\n"),
		nodeDir + "/node1/meminfo":                info("1", "2048", "0"),
		nodeDir + "/node10/cpulist":               file("\n"),
		nodeDir + "/node10/meminfo":               info("10", "4096", "4096"),
		nodeDir + "/node2/cpulist":                file("5"),
		nodeDir + "/node2/meminfo":                info("2", "0", "0"),
		nodeDir + "/online":                       file("0-2,10\n"),
		nodeDir + "/node01/cpulist":               file("what is no number of a node is none"),
		nodeDir + "/nodes":                        file(""),
		"bus/pci/devices/0000:1b:00.0/numa_node":  file("1\n"),
		"bus/pci/devices/0000:1c:00.0/numa_node":  file("-1\n"),
		"bus/pci/devices/0000:1d:00.0/numa_node":  file("one\n"),
		"bus/pci/devices/10000:e1:00.0/numa_node": file("10"),
	}
}

func TestNodes(t *testing.T) {
	nodes, err := Nodes(machine())
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{
		{0, []int{0, 1, 2, 8}, 1 << 20, 512 << 10},
		{1, []int{3, 4}, 2 << 20, 0},
		{2, []int{5}, 0, 0},
		{10, nil, 4 << 20, 4 << 20},
	}
	if !slices.EqualFunc(nodes, want, func(a, b Node) bool {
		return a.ID == b.ID && slices.Equal(a.CPUs, b.CPUs) && a.Memory == b.Memory && a.Free == b.Free
	}) {
		t.Errorf("got %v, want %v", nodes, want)
	}
}

func TestNodesRefused(t *testing.T) {
	for _, c := range []struct {
		name, file, text, want string
	}{
		{"a list backwards", "cpulist", "3-1", `"3-1"`},
		{"a list of no numbers", "cpulist", "0-2,x", `"x"`},
		{"too many processors", "cpulist", "0-99999999", "0-99999999"},
		{"an empty part", "cpulist", "1,,2", `""`},
		{"no sizes", "meminfo", "", "MemTotal"},
		{"a negative size", "meminfo", "Node 0 MemTotal: -5 kB", "MemTotal"},
		{"another unit", "meminfo", "Node 0 MemTotal: 5 MB", "MemTotal"},
		{"too large a size", "meminfo", "Node 0 MemTotal: 99999999999999999999 kB", "MemTotal"},
		{"no free size", "meminfo", "Node 0 MemTotal: 5 kB", "MemFree"},
	} {
		sys := machine()
		sys[nodeDir+"/node0/"+c.file] = file(c.text)
		if _, err := Nodes(sys); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "node 0") {
			t.Errorf("%s: %v, want one of node 0 that says %s", c.name, err, c.want)
		}
	}
	for name, sys := range map[string]fs.FS{
		"nothing": fstest.MapFS{}, "no nodes": fstest.MapFS{nodeDir + "/online": file("")},
	} {
		if _, err := Nodes(sys); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNear(t *testing.T) {
	for _, c := range []struct {
		pci  string
		node int
		err  error
		text string
	}{
		{pci: "0000:1b:00.0", node: 1},
		{pci: "00000000:1B:00.0", node: 1}, // as NVIDIA's tools write it
		{pci: "10000:e1:00.0", node: 10},
		{pci: "0000:1c:00.0", err: ErrUnknown},
		{pci: "0000:1d:00.0", text: "one"},
		{pci: "0000:1e:00.0", err: fs.ErrNotExist},
		{pci: "", err: fs.ErrInvalid},
		{pci: "1b", err: fs.ErrInvalid},
		{pci: "0000:../../x", err: fs.ErrInvalid},
		{pci: "gpu:1b:00.0", err: fs.ErrInvalid},
	} {
		node, err := Near(machine(), c.pci)
		if c.err == nil && c.text == "" {
			if node != c.node || err != nil {
				t.Errorf("%q: node %d, %v; want %d", c.pci, node, err, c.node)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.text) || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%q: %v, want %v %s", c.pci, err, c.err, c.text)
		}
	}
}

// What a tree holds is refused or read, and never more than it holds.
func FuzzNodes(f *testing.F) {
	f.Add("0-2,8\n", "Node 0 MemTotal: 1024 kB\nNode 0 MemFree: 0 kB")
	f.Add("65535", "Node 0 MemTotal: 9007199254740991 kB\nNode 0 MemFree: 1 kB")
	f.Fuzz(func(t *testing.T, cpus, memory string) {
		nodes, err := Nodes(fstest.MapFS{nodeDir + "/node3/cpulist": file(cpus), nodeDir + "/node3/meminfo": file(memory)})
		if err != nil {
			return
		}
		if n := nodes[0]; n.ID != 3 || n.Memory < 0 || n.Free < 0 || len(n.CPUs) > 2*mostCPUs {
			t.Errorf("%v", n)
		}
	})
}

// This machine's tree, where it has one, has processors and memory.
func TestThisMachine(t *testing.T) {
	nodes, err := Nodes(os.DirFS("/sys"))
	if errors.Is(err, fs.ErrNotExist) {
		return // not Linux, or a kernel without
	}
	if err != nil {
		t.Fatal(err)
	}
	var cpus int
	var memory int64
	for _, n := range nodes {
		cpus, memory = cpus+len(n.CPUs), memory+n.Memory
	}
	if cpus == 0 || memory == 0 {
		t.Errorf("%d processors and %d bytes on %d nodes", cpus, memory, len(nodes))
	}
}
