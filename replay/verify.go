package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A Verdict says how far mem/caching did what PyTorch did in a recording.
type Verdict struct {
	Allocs               int // recorded
	AddressesMatched     int // of them, at the recorded address
	SegmentEvents        int // segments allocated, freed, mapped and unmapped
	SegmentEventsMatched int // in order, with address and size
	OOMs                 int
	OOMsMatched          int
	Blocks               int // of the recorded final state
	BlocksMatched        int // with address, size, requested size and state, in a segment that is the same

	RecordedPeaks Peaks // as the recorded events add up
	Peaks         Peaks // as the allocator counts them
	AllocatedPeak int64 // bytes of blocks on loan; events do not tell it

	Retries     int64         // requests that needed the whole cache freed first
	DriverCalls int64         // for memory, those that failed included
	DriverTime  time.Duration // that they take by the cost model of sim.H200
	AtPeak      Usage         // what the reserved memory held when it first reached its peak

	Limit       int64       // bytes that could be reserved; 0 without a limit
	LimitFound  bool        // Limit was not given, but found from when garbage was collected
	Difference  *Difference // the first; nil if there is none
	Exact       bool        // everything is as recorded
	ConfigNotes []string    // settings without effect

	refusals int // calls for which the driver had no room, as recorded
}

// Peaks are the highest sums of two quantities, in bytes.
type Peaks struct {
	Requested int64 // asked for, of active blocks
	Reserved  int64 // in segments and mapped pages
}

// A Difference is where a replay first left the recording.
type Difference struct {
	Device int
	Entry  int    // index into Trace.Events; -1 if the final state differs
	What   string // what was recorded, and what the allocator did
}

func (d *Difference) String() string {
	if d.Entry < 0 {
		return fmt.Sprintf("device %d, final state: %s", d.Device, d.What)
	}
	return fmt.Sprintf("device %d, trace entry %d: %s", d.Device, d.Entry, d.What)
}

// VerifyOptions say under which conditions a recording was made, as far as the file does not.
type VerifyOptions struct {
	// Config replaces the recorded settings if it is not nil.
	Config *caching.Config
	// Limit is how many bytes could be reserved (of set_per_process_memory_fraction: the fraction of all memory). Zero is
	// no limit: then the driver's refusals are taken from the recording, and the limit that garbage collection goes by is
	// searched for.
	Limit int64
	// TotalMemory is the device's memory in bytes; 0 means an H200's. It decides how many addresses expandable segments
	// reserve, and what a memory fraction in the settings means.
	TotalMemory int64
}

// ErrLateStart is matched by the error of a recording that does not begin with the first allocation: what was there
// before decides where everything goes, and is not in the file.
var ErrLateStart = errors.New("the recording does not start with the first allocation")

// ErrNoHistory is matched by the error of a snapshot without a trace.
var ErrNoHistory = errors.New("no allocation history in the snapshot; " +
	"call torch.cuda.memory._record_memory_history() before the first allocation")

// Verify replays every device of a snapshot with the driver's recorded choices (where segments went, what it refused)
// and the recorded completions of frees, under the recorded settings, and compares each event and the final state.
func Verify(s *snapshot.Snapshot, opts VerifyOptions) (Verdict, error) {
	var v Verdict
	cfg, notes, err := RecordedConfig(s)
	if opts.Config != nil {
		cfg, notes, err = *opts.Config, nil, nil
	}
	if err != nil {
		return v, err
	}
	cfg.PyTorchExact = true
	if opts.Limit > 0 {
		cfg.Limit = opts.Limit
	}
	if opts.TotalMemory == 0 {
		opts.TotalMemory = H200Memory
	}
	found := false
	for device, t := range s.Traces {
		if t == nil || len(t.Events) == 0 {
			continue
		}
		found = true
		one, err := verifyDevice(s, device, t, cfg, opts.TotalMemory)
		if err != nil {
			return v, fmt.Errorf("device %d: %w", device, err)
		}
		v.merge(one)
	}
	if !found {
		return v, ErrNoHistory
	}
	v.ConfigNotes = notes
	v.Exact = v.Difference == nil
	return v, nil
}

// H200Memory is the memory of an NVIDIA H200 in bytes, as cudaMemGetInfo tells it.
const H200Memory = 150_109_880_320

// RecordedConfig is the settings that a snapshot was recorded under. Notes are of those that mean nothing here.
func RecordedConfig(s *snapshot.Snapshot) (caching.Config, []string, error) {
	cfg, notes, err := caching.ParseConfig(s.Settings.Conf)
	if err != nil {
		return cfg, nil, fmt.Errorf("the recorded settings: %w", err)
	}
	if s.Settings.Raw == nil {
		return cfg, notes, nil
	}
	// The fields are what was in force at the end; the text may be of an earlier call.
	cfg.MaxSplitSize = s.Settings.MaxSplitSize
	if cfg.MaxSplitSize < 0 {
		cfg.MaxSplitSize = caching.Unlimited
	}
	cfg.GarbageCollectionThreshold = s.Settings.GarbageCollectionThreshold
	cfg.ExpandableSegments = s.Settings.ExpandableSegments
	cfg.ReleaseLock = s.Settings.ReleaseLockOnCudaMalloc
	for _, r := range s.Settings.RoundupPower2Divisions {
		if i := int(math.Log2(float64(r.MiB))); r.MiB > 0 && i < len(cfg.RoundupDivisions) {
			cfg.RoundupDivisions[i] = r.Divisions
		}
	}
	return cfg, notes, cfg.Validate()
}

// merge adds the verdict of one more device.
func (v *Verdict) merge(o Verdict) {
	v.Allocs += o.Allocs
	v.AddressesMatched += o.AddressesMatched
	v.SegmentEvents += o.SegmentEvents
	v.SegmentEventsMatched += o.SegmentEventsMatched
	v.OOMs += o.OOMs
	v.OOMsMatched += o.OOMsMatched
	v.Blocks += o.Blocks
	v.BlocksMatched += o.BlocksMatched
	v.RecordedPeaks.Requested += o.RecordedPeaks.Requested
	v.RecordedPeaks.Reserved += o.RecordedPeaks.Reserved
	v.Peaks.Requested += o.Peaks.Requested
	v.Peaks.Reserved += o.Peaks.Reserved
	v.AllocatedPeak += o.AllocatedPeak
	v.Retries += o.Retries
	v.DriverCalls += o.DriverCalls
	v.DriverTime += o.DriverTime
	v.AtPeak.add(o.AtPeak)
	v.refusals += o.refusals
	v.Limit = max(v.Limit, o.Limit)
	v.LimitFound = v.LimitFound || o.LimitFound
	if v.Difference == nil {
		v.Difference = o.Difference
	}
}

// PeaksEqual reports whether the allocator's peaks are the recorded ones.
func (v *Verdict) PeaksEqual() bool { return v.Peaks == v.RecordedPeaks }

// maxAttempts bounds how many readings of an ambiguous recording are tried.
const maxAttempts = 500

// verifyDevice finds the conditions under which the allocator follows a recording, as far as the file leaves them open:
// the limit that garbage collection went by, and which call gave segments back. It returns the verdict of the attempt
// that got furthest.
func verifyDevice(s *snapshot.Snapshot, device int, t *trace.Trace, cfg caching.Config, total int64) (Verdict, error) {
	if cfg.GarbageCollectionThreshold == 0 || cfg.Limit > 0 || cfg.MemoryFraction < 1 {
		return verifyReadings(s, device, t, cfg, total)
	}
	var best Verdict
	for i, limit := range limitCandidates(t, cfg.GarbageCollectionThreshold) {
		cfg.Limit = limit
		v, err := verifyReadings(s, device, t, cfg, total)
		if err != nil {
			return v, err
		}
		v.LimitFound = limit > 0
		if i == 0 || v.progress() > best.progress() {
			best = v
		}
		if v.Difference == nil {
			break
		}
	}
	return best, nil
}

// verifyReadings tries the likeliest reading of a recording. As long as the allocator does not follow it, it takes
// private pools into account that show themselves (hiddenPool), or turns the last open choice before the difference:
// segments may have been given back by a request that found no room, or by somebody who emptied the cache before it.
func verifyReadings(s *snapshot.Snapshot, device int, t *trace.Trace, cfg caching.Config, total int64) (Verdict, error) {
	readings := map[int]reading{}
	var hidden []*hiddenPool
	var best Verdict
	for attempt := range maxAttempts {
		r, err := newVerifier(s, device, t, cfg, total, readings, hidden)
		if err != nil {
			return Verdict{}, err
		}
		v, err := r.run()
		if err != nil {
			return v, err
		}
		v.Limit = cfg.Limit
		if attempt == 0 || v.progress() > best.progress() {
			best = v
		}
		if v.Difference == nil {
			break
		}
		if r.found != nil {
			hidden = append(hidden, r.found)
		} else if !r.turn() {
			break
		}
	}
	return best, nil
}

// limitCandidates are limits, in bytes, that may have been in force while garbage was collected at a threshold. A
// request collects if more is reserved than the threshold times the limit: so, if a request gave segments back because
// it collected, the limit was less than what was reserved over the threshold, and at the first such request it was
// hardly less. What was reserved at most bounds the limit from below. These bounds come first, then ever finer samples
// of the range that they span. 0, no limit, is all there is if nothing was given back.
func limitCandidates(t *trace.Trace, threshold float64) []int64 {
	low := recordedPeaks(t).Reserved
	var bounds []int64
	var reserved int64
	for i := range t.Events {
		switch e := &t.Events[i]; e.Action {
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			reserved += e.Size
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			if e.Action == mem.ActionSegmentFree && (i == 0 || t.Events[i-1].Action != mem.ActionSegmentFree) {
				bounds = append(bounds, max(low, int64(float64(reserved)/threshold)-1))
			}
			reserved -= e.Size
		}
	}
	if len(bounds) == 0 {
		return []int64{0}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	high := bounds[len(bounds)-1]
	candidates := append(bounds[:min(len(bounds), 50)], low)
	for parts := int64(2); parts <= 64 && high-low > parts; parts *= 2 {
		for i := parts - 1; i > 0; i -= 2 {
			candidates = append(candidates, low+(high-low)/parts*i)
		}
	}
	return candidates
}

// progress is how much of a recording was followed.
func (v *Verdict) progress() int {
	return v.AddressesMatched + v.SegmentEventsMatched + v.OOMsMatched + v.BlocksMatched
}

// recordedPeaks adds the events up.
func recordedPeaks(t *trace.Trace) Peaks {
	var p Peaks
	var requested, reserved int64
	for i := range t.Events {
		e := &t.Events[i]
		switch e.Action {
		case mem.ActionAlloc:
			requested += e.Size
		case mem.ActionFreeCompleted:
			requested -= e.Size
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			reserved += e.Size
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			reserved -= e.Size
		}
		p.Requested = max(p.Requested, requested)
		p.Reserved = max(p.Reserved, reserved)
	}
	return p
}

// describe writes an event as a difference names it.
func describe(action mem.Action, ptr driver.Pointer, size int64, stream uint64) string {
	switch action {
	case mem.ActionOOM:
		return fmt.Sprintf("oom of %d bytes on stream %d", size, stream)
	default:
		return fmt.Sprintf("%s of %d bytes at %#x on stream %d", action, size, ptr, stream)
	}
}
