package mem

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
)

// An OutOfMemory is the error of an allocation that found no room. It contains the figures that explain the failure. It
// matches ErrNoMemory. All sizes are bytes.
type OutOfMemory struct {
	Requested int64 // bytes requested by the caller
	Rounded   int64 // size of the block for the request
	Segment   int64 // bytes requested from the device
	TooLarge  bool  // the request is beyond 1 EiB; nothing was tried, and nothing below is set
	Rejected  bool  // by throw_on_cudamalloc_oom: the limit leaves too little, and nothing was tried

	Device       int    // ordinal
	DeviceName   string // product
	Total, Free  int64  // of the device, as it reports them
	Allowed      int64  // bytes that the allocator may reserve; 0 without a limit
	LimitName    string // name of the limit, if it is not the allocator's own: "the engine's MemoryLimit"
	Needed       int64  // limit in bytes that the request needs, if the allocator's own limit refused it; otherwise 0
	Addresses    int64  // size of an expandable segment's addresses, if the request is larger; otherwise 0
	ReserveClass string // the stream's class, if the settings for that class limit the addresses
	Allocated    int64  // in live blocks
	Reserved     int64  // in segments and mapped pages
	PrivatePools int64  // cached in private pools
	Processes    []ProcessMemory

	Stream      driver.StreamID // of the request
	Pool        PoolID
	Small       bool // a request up to 1 MiB
	Cached      []CachedMemory
	LargestFree int64 // the largest cached block of the request's own stream and pool
	Stranded    int64 // free bytes in segments that cannot be freed because of a live or pending block
	Pinning     []PinningBlock
	Remedies    []Remedy

	Cause error // the driver's error, or a *LimitError; nil if the allocator's own limit refused the request
}

// A ProcessMemory is the memory of a device that one process holds.
type ProcessMemory = driver.ProcessMemory

// A CachedMemory describes the free memory of one pool and stream.
type CachedMemory struct {
	Pool    PoolID
	Stream  driver.StreamID
	Small   bool
	Bytes   int64
	Blocks  int
	Largest int64
}

// A PinningBlock is a live or pending block that keeps its segment, with the free memory in it, from being returned to
// the driver.
type PinningBlock struct {
	Ptr         driver.Pointer
	Size        int64
	Requested   int64
	Segment     driver.Pointer
	SegmentSize int64
	Stranded    int64 // free bytes of the segment
	Live        int   // live and pending blocks in the segment, including this one
	Pending     bool  // it has been freed, and a stream may still use it
}

// A Remedy is a change under which the request would have fitted.
type Remedy struct {
	Name     string // "expandable_segments:True", "max_split_size_mb:128", "stream 3's cache"
	Reason   string
	Estimate bool // from the memory free now; with the setting from the start, blocks would lie elsewhere
}

// Is makes errors.Is(err, ErrNoMemory) true.
func (e *OutOfMemory) Is(target error) bool {
	return target == ErrNoMemory || target == driver.ErrNoMemory
}

// AddProcesses adds the processes that use dev's memory, if the driver reports them. Call it without locks: it takes
// milliseconds on NVIDIA devices.
func (e *OutOfMemory) AddProcesses(dev driver.Device) {
	processes, err := dev.Processes()
	if err != nil {
		return
	}
	for _, p := range processes {
		if p.Bytes >= 0 {
			e.Processes = append(e.Processes, p)
		}
	}
}

// Unwrap returns Cause.
func (e *OutOfMemory) Unwrap() error { return e.Cause }

// Error returns the figures of PyTorch's message, in its order, followed by an explanation.
func (e *OutOfMemory) Error() string {
	if e.TooLarge {
		return fmt.Sprintf("mem: out of memory. Tried to allocate more than 1EB memory (%d bytes)", e.Requested)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "mem: out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. ",
		FormatSize(e.Segment), e.Device, FormatSize(e.Total), FormatSize(e.Free))
	for _, p := range e.Processes {
		who := fmt.Sprintf("Process %d", p.PID)
		if p.Self {
			who = "Including memory from elsewhere, this process"
		}
		fmt.Fprintf(&b, "%s has %s memory in use. ", who, FormatSize(p.Bytes))
	}
	if e.Allowed > 0 {
		fmt.Fprintf(&b, "%s allowed; ", FormatSize(e.Allowed))
	}
	fmt.Fprintf(&b, "%s is allocated, ", FormatSize(e.Allocated))
	if e.PrivatePools > 0 {
		fmt.Fprintf(&b, "%s cached in private pools, ", FormatSize(e.PrivatePools))
	}
	fmt.Fprintf(&b, "and %s is reserved but unallocated.", FormatSize(max(0, e.Reserved-e.Allocated-e.PrivatePools)))
	e.explain(&b)
	if e.Cause != nil {
		said := "the device said"
		if limit := (*LimitError)(nil); errors.As(e.Cause, &limit) {
			said = "a limit refused it"
		}
		fmt.Fprintf(&b, "\n  %s: %v", said, errors.Join(e.Cause))
	}
	return b.String()
}

// explain writes the facts that PyTorch's message lacks, one on each line.
func (e *OutOfMemory) explain(b *strings.Builder) {
	pool := "large"
	if e.Small {
		pool = "small"
	}
	fmt.Fprintf(b, "\n  the request: %s (%d bytes) on stream %d, %s pool", FormatSize(e.Requested), e.Requested,
		e.Stream, pool)
	if e.Pool != (PoolID{}) {
		fmt.Fprintf(b, " of private pool %v", e.Pool)
	}
	fmt.Fprintf(b, "; largest free block there: %s", FormatSize(e.LargestFree))
	for _, c := range e.Cached {
		pool := "large"
		if c.Small {
			pool = "small"
		}
		fmt.Fprintf(b, "\n  cached on stream %d, %s pool", c.Stream, pool)
		if c.Pool != (PoolID{}) {
			fmt.Fprintf(b, " of private pool %v", c.Pool)
		}
		fmt.Fprintf(b, ": %s in %d blocks, the largest %s", FormatSize(c.Bytes), c.Blocks, FormatSize(c.Largest))
	}
	if e.Stranded > 0 {
		fmt.Fprintf(b, "\n  stranded: %s is free but shares a segment with blocks in use", FormatSize(e.Stranded))
	}
	for _, p := range e.Pinning {
		block := "a block of " + FormatSize(p.Size)
		if p.Pending {
			block = fmt.Sprintf("a freed block of %s, which a stream may still use,", FormatSize(p.Size))
		}
		fmt.Fprintf(b, "\n    %s at %#x pins %s of a segment of %s", block, p.Ptr, FormatSize(p.Stranded),
			FormatSize(p.SegmentSize))
		if p.Live > 1 {
			fmt.Fprintf(b, " (with %d more)", p.Live-1)
		}
	}
	if why := e.why(); why != "" {
		fmt.Fprintf(b, "\n  %s", why)
	}
	for _, r := range e.Remedies {
		estimate := ""
		if r.Estimate {
			estimate = ", by estimate"
		}
		fmt.Fprintf(b, "\n  would have fitted with %s%s: %s", r.Name, estimate, r.Reason)
	}
}

// why returns the cause of the failure. It is empty if only the remedies explain it.
func (e *OutOfMemory) why() string {
	most := e.Reserved + e.Free // maximum for the allocator unless other processes free memory
	if e.Allowed > 0 {
		most = min(most, e.Allowed)
	}
	switch {
	case e.Addresses > 0:
		class, setting := "", "expandable_segments_reserve"
		if e.ReserveClass != "" {
			class = fmt.Sprintf(" for class %q", e.ReserveClass)
			setting = "the class's entry in expandable_segments_reserve_by_class"
		}
		return fmt.Sprintf("the expandable-segment reserve of %s%s is too small for it: a block lies in one segment; "+
			"raise %s",
			FormatSize(e.Addresses), class, setting)
	case e.Total > 0 && e.Segment > e.Total:
		return fmt.Sprintf("no setting would have let it through: it alone is more than the %s that the device has",
			FormatSize(e.Total))
	case e.Needed > 0:
		return fmt.Sprintf("%s of %s was reached, the GPU had %s free; the request needed %s in all",
			cmp.Or(e.LimitName, "your own limit"), FormatSize(e.Allowed), FormatSize(e.Free), FormatSize(e.Needed))
	case e.Total > 0 && e.Rounded > most-e.Allocated:
		return fmt.Sprintf("live blocks leave too little room: %s is allocated of the %s that there is for them",
			FormatSize(e.Allocated), FormatSize(most))
	case len(e.Remedies) == 0 && e.Total > 0:
		return "what is free lies in pieces that are too small for it, or where it cannot be used"
	}
	return ""
}

// FormatSize formats a size as in PyTorch's messages: two decimals and the unit KiB, MiB or GiB, or whole bytes.
func FormatSize(n int64) string {
	switch {
	case n <= 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n <= 1<<20:
		return fmt.Sprintf("%.2f KiB", float64(n)/(1<<10))
	case n <= 1<<30:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}
