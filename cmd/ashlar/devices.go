package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

type devicesCmd struct {
	JSON bool `name:"json" help:"Print one JSON object for each device, and for each driver without one."`
}

// Help implements kong.HelpProvider.
func (*devicesCmd) Help() string {
	return `Lists the devices of all drivers with their abilities. It opens each device briefly. For a driver without devices it prints the
reason; "ashlar doctor" prints what the driver searched for and how to fix it.

Examples:

    ashlar devices
    ashlar devices --json | jq -r 'select(.driver == "cuda") | .spec'`
}

// deviceLine is the output of --json for a device, or for a driver without one: then it has an error and no spec.
type deviceLine struct {
	Driver          string   `json:"driver"`
	Spec            string   `json:"spec,omitempty"`
	Name            string   `json:"name,omitempty"`
	Ordinal         int      `json:"ordinal"`
	TotalMemory     int64    `json:"total_memory,omitempty"`
	FreeMemory      *int64   `json:"free_memory,omitempty"`
	Alignment       int64    `json:"alignment,omitempty"`
	Granularity     int64    `json:"granularity,omitempty"`
	UUID            string   `json:"uuid,omitempty"`
	PCI             string   `json:"pci,omitempty"`
	Compute         int      `json:"compute_capability,omitempty"`
	Multiprocessors int      `json:"multiprocessors,omitempty"`
	L2              int64    `json:"l2,omitempty"`
	SharedMemory    int64    `json:"shared_memory,omitempty"`
	MIG             bool     `json:"mig,omitempty"`
	Abilities       []string `json:"abilities,omitempty"`
	Peers           []string `json:"peers,omitempty"` // specs of the devices whose memory it can reach
	Error           string   `json:"error,omitempty"`
}

// ability is an optional ability of devices.
type ability struct {
	name string
	has  func(driver.Device) bool
}

var abilities = []ability{
	{"pages", func(d driver.Device) bool { return d.VirtualMemory() != nil }},
	{"kernels", func(d driver.Device) bool { return d.Kernels() != nil }},
	{"pinned", func(d driver.Device) bool { return d.Pinned() != nil }},
	{"timing", func(d driver.Device) bool { return d.Timing() != nil }},
	{"graphs", func(d driver.Device) bool { return d.Graphs() != nil }},
	{"peers", func(d driver.Device) bool { return d.Peers() != nil }},
	{"sharing", func(d driver.Device) bool { return d.Sharing() != nil }},
}

// Run implements the command.
func (c *devicesCmd) Run(s *streams) error {
	var lines []deviceLine
	for _, name := range driver.Drivers() {
		lines = append(lines, devicesOf(name)...)
	}
	if c.JSON {
		var failures []error
		for i := range lines {
			failures = append(failures, json.NewEncoder(s.out).Encode(&lines[i]))
		}
		return errors.Join(failures...)
	}
	writeDevices(s.out, lines)
	return nil
}

// devicesOf lists the devices of one driver, or the reason why there are none.
func devicesOf(name string) []deviceLine {
	listings, err := driver.Lookup(name).Devices()
	if err != nil {
		return []deviceLine{{Driver: name, Error: err.Error()}}
	}
	if len(listings) == 0 {
		return []deviceLine{{Driver: name, Error: "none was found"}}
	}
	lines := make([]deviceLine, len(listings))
	opened := make([]driver.Device, len(listings))
	for i, l := range listings {
		n := l.Info
		lines[i] = deviceLine{
			Driver: name, Spec: l.Spec, Name: n.Name, Ordinal: n.Ordinal, TotalMemory: n.TotalMemory,
			Alignment: n.Alignment, Granularity: n.Granularity, UUID: n.UUID, PCI: n.PCI, Compute: n.Compute,
			Multiprocessors: n.Multiprocessors, L2: n.L2, SharedMemory: n.SharedMemory, MIG: n.MIG,
		}
		d, err := driver.Open(l.Spec)
		if err != nil {
			lines[i].Error = err.Error()
			continue
		}
		defer d.Close()
		opened[i] = d
		if free, _, err := d.Available(); err == nil {
			lines[i].FreeMemory = &free
		}
		for _, a := range abilities {
			if a.has(d) {
				lines[i].Abilities = append(lines[i].Abilities, a.name)
			}
		}
	}
	for i, d := range opened {
		for j, other := range opened {
			if i != j && reaches(d, other) {
				lines[i].Peers = append(lines[i].Peers, lines[j].Spec)
			}
		}
	}
	return lines
}

// reaches reports whether a device can access the memory of another one. Either may be nil.
func reaches(d, other driver.Device) bool {
	if d == nil || other == nil || d.Peers() == nil {
		return false
	}
	can, err := d.Peers().CanAccess(other)
	return err == nil && can
}

func writeDevices(w *page, lines []deviceLine) {
	t := table{header: []string{"device", "memory", "free"}, marked: -1}
	for _, a := range abilities {
		t.header = append(t.header, a.name)
	}
	for i := range abilities {
		t.optional = append(t.optional, len(t.header)-1-i)
	}
	for _, l := range lines {
		if l.Spec == "" {
			continue
		}
		row := []string{l.Spec + "  " + l.Name, bytesize.Format(l.TotalMemory), "?"}
		if l.FreeMemory != nil {
			row[2] = bytesize.Format(*l.FreeMemory)
		}
		for _, a := range abilities {
			mark := "-"
			switch {
			case slices.Contains(l.Abilities, a.name):
				mark = "yes"
			case l.Error != "":
				mark = "?" // the device could not be queried
			}
			row = append(row, mark)
		}
		t.rows = append(t.rows, row)
	}
	if len(t.rows) > 0 {
		t.write(w)
	}
	first := true
	for _, l := range lines {
		text := l.details()
		if text == "" {
			continue
		}
		if first && len(t.rows) > 0 {
			fmt.Fprintln(w)
		}
		first = false
		name := l.Spec
		name = cmp.Or(name, l.Driver)
		w.paragraph(name+": ", text)
	}
}

// details are facts without a column in the table.
func (l *deviceLine) details() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case l.Error != "" && l.Spec == "":
		add(`no device: %s. "ashlar doctor %s" prints details`, l.Error, l.Driver)
	case l.Error != "":
		add("could not be opened: %s", l.Error)
	}
	if l.Compute > 0 {
		add("compute capability %d.%d", l.Compute/10, l.Compute%10)
	}
	if l.Multiprocessors > 0 {
		add("%s", plural(l.Multiprocessors, "multiprocessor"))
	}
	if l.L2 > 0 {
		add("%s of L2", bytesize.Format(l.L2))
	}
	if l.SharedMemory > 0 {
		add("%s of shared memory per block", bytesize.Format(l.SharedMemory))
	}
	if l.MIG {
		add("a slice of a GPU (MIG)")
	}
	if l.PCI != "" {
		add("PCI %s", l.PCI)
	}
	if l.UUID != "" {
		add("%s", l.UUID)
	}
	if len(l.Peers) > 0 {
		add("reaches %s", strings.Join(l.Peers, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ") + "."
}
