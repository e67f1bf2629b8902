package mem

import (
	"fmt"
	"strconv"
	"strings"
)

// Attributes are properties of memory that a caller requests or an allocator provides. They are TensorFlow's
// AllocatorAttributes, as a set: a|b merges two (TensorFlow's Merge), a&^b removes some, and == compares. The zero
// value is the device's own memory. See AllocatorFor.
//
// TensorFlow's scope_id, which keeps two sets from being merged, has no counterpart: a scope or a pool is a value to
// allocate from, not a number.
type Attributes uint32

const (
	// OnHost is memory that Go code can access.
	OnHost Attributes = 1 << iota
	// NICCompatible is memory that network cards access directly: page-locked host memory that the program has
	// registered (pinned.RegisterNIC). Nothing in this module registers a GPU's own memory.
	NICCompatible
	// GPUCompatible is memory that the device copies from and to directly: its own, and page-locked host memory.
	GPUCompatible
	// TrackSizes means that the allocator knows the requested size of each of its blocks: see SizeTracker.
	TrackSizes

	knownAttributes  = OnHost | NICCompatible | GPUCompatible | TrackSizes | deviceAttributes
	deviceAttributes = Attributes(0xFF) << deviceShift
	deviceShift      = 24
)

var attributeNames = [...]string{"on_host", "nic_compatible", "gpu_compatible", "track_sizes"}

// DeviceAttributes returns the eight attributes whose meaning a kind of device defines.
func DeviceAttributes(b uint8) Attributes { return Attributes(b) << deviceShift }

// Device returns the eight attributes whose meaning a kind of device defines.
func (a Attributes) Device() uint8 { return uint8(a >> deviceShift) }

// Satisfies reports whether a has all of want: TensorFlow's want.IsEqualOrLessRestrictiveThan(a).
func (a Attributes) Satisfies(want Attributes) bool { return a&want == want }

// String returns the names in a fixed order, "on_host,gpu_compatible,device=0x03", or "none". ParseAttributes reads
// them.
func (a Attributes) String() string {
	var names []string
	for i, name := range attributeNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if unknown := a &^ knownAttributes; unknown != 0 {
		names = append(names, fmt.Sprintf("unknown=%#x", uint32(unknown)))
	}
	if d := a.Device(); d != 0 {
		names = append(names, fmt.Sprintf("device=0x%02x", d))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

// ParseAttributes parses names as String writes them, in any order, each at most once, with optional white space around
// them. The number of device is a Go literal from 1 to 255. Empty text means none. The error names the invalid part,
// and lists the valid names.
func ParseAttributes(text string) (Attributes, error) {
	if t := strings.TrimSpace(text); t == "" || t == "none" {
		return 0, nil
	}
	var a Attributes
	for field := range strings.SplitSeq(text, ",") {
		one, err := parseAttribute(strings.TrimSpace(field))
		switch {
		case err != nil:
			return 0, fmt.Errorf("mem: attributes %q: %w", text, err)
		case a&one != 0 || one.Device() != 0 && a.Device() != 0:
			return 0, fmt.Errorf("mem: attributes %q: %q comes twice", text, field)
		}
		a |= one
	}
	return a, nil
}

func parseAttribute(name string) (Attributes, error) {
	if number, ok := strings.CutPrefix(name, "device="); ok {
		d, err := strconv.ParseUint(number, 0, 8)
		if err != nil || d == 0 {
			return 0, fmt.Errorf("device is %q: want 1 to 255", number)
		}
		return DeviceAttributes(uint8(d)), nil
	}
	for i, known := range attributeNames {
		if name == known {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("%q is none of %s and device=NUMBER", name, strings.Join(attributeNames[:], ", "))
}

// A SizeTracker knows the requested size of each of its blocks: TensorFlow's TracksAllocationSizes. Its methods take
// constant time, and panic if the block is not live. Ask the topmost layer only: each layer gives a block its own tag.
// See layer.SlowSizes for blocks that are known by address.
type SizeTracker interface {
	Allocator

	RequestedSize(b Block) int64 // bytes
	AllocatedSize(b Block) int64 // usable bytes, at least the requested size
	AllocationID(b Block) uint64 // from 1, rising in the order of allocation, never reused
}
