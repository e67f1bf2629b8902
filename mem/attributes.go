package mem

import (
	"fmt"
	"strconv"
	"strings"
)

// Attributes say what kind of memory somebody wants of a device, or an allocator has: TensorFlow's AllocatorAttributes.
// They are a set: a|b merges two (TensorFlow's Merge), a&^b takes some out, which its setters cannot, and == compares.
// The zero value is the device's own memory. See AllocatorFor.
//
// TensorFlow's scope_id, which keeps two of them from being merged, is not among them: a Scope or a pool is a value
// that one allocates from, and not a number that an allocator is found by.
type Attributes uint32

const (
	// OnHost is memory that Go code can reach, wherever the work that it is for runs.
	OnHost Attributes = 1 << iota
	// NICCompatible is memory that network cards read and write by themselves: page-locked memory of the host that the
	// program has registered (pinned.RegisterNIC). Nothing in this module registers memory of a GPU's own.
	NICCompatible
	// GPUCompatible is memory that the device copies from and to by itself: its own, and page-locked memory of the
	// host.
	GPUCompatible
	// TrackSizes is an allocator that tells what was asked for of each of its blocks: see SizeTracker.
	TrackSizes

	knownAttributes  = OnHost | NICCompatible | GPUCompatible | TrackSizes | deviceAttributes
	deviceAttributes = Attributes(0xFF) << deviceShift
	deviceShift      = 24
)

var attributeNames = [...]string{"on_host", "nic_compatible", "gpu_compatible", "track_sizes"}

// DeviceAttributes returns the eight attributes that mean what a kind of device says they mean.
func DeviceAttributes(b uint8) Attributes { return Attributes(b) << deviceShift }

// Device returns those eight.
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

// ParseAttributes reads names as String writes them, in any order, each at most once, with white space around them. The
// number of device is a Go literal from 1 to 255. Empty text means none. The error says what is wrong, and which names
// there are.
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

// A SizeTracker knows of each of its blocks what was asked for: TensorFlow's TracksAllocationSizes. Its methods take
// constant time, and panic if the block is not live. Only the topmost layer of a stack can be asked: a block is known
// by the tag that its own layer gave it. See layer.SlowSizes for blocks that are known by their addresses.
type SizeTracker interface {
	Allocator

	RequestedSize(b Block) int64 // bytes that were asked for
	AllocatedSize(b Block) int64 // bytes that the borrower may use, at least as many
	AllocationID(b Block) uint64 // from 1, rising in the order of allocation, never given again
}
