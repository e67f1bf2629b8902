// Package verify checks that mem/caching allocates exactly as PyTorch's caching allocator did in a recorded memory
// snapshot.
//
// Verify replays the allocation history of a snapshot on a device that answers as the recorded driver did, and compares
// every address, every segment event, the peaks, each out-of-memory error and the final state. With Options.Device it
// also puts real memory behind the recorded addresses and checks that no two blocks share memory:
//
//	s, err := snapshot.ReadFile("snapshot.pickle")
//	...
//	v, err := verify.Verify(s, verify.Options{})
//	if err == nil && !v.Exact {
//		fmt.Println(v.Difference)
//	}
//
// The recording must begin before the first allocation. Sizes are in bytes. Verify may be called from several
// goroutines at once, also with one snapshot, but each call needs a Device of its own.
package verify

// A snapshot does not contain all the conditions of its recording: the pools of segments that were freed, a limit that
// was lowered, or whether cached memory was freed by a request or by an explicit call. Verify starts with no
// assumptions (guess) and replays (verifier) up to the first difference. The verifier lists assumptions that would
// explain the difference, and search tries them, depth first, continuing from the attempt that follows the recording
// furthest.

import (
	"errors"
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/internal/capacity"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A Verdict says how far mem/caching followed PyTorch in a recording.
type Verdict struct {
	Allocs               int // recorded allocations
	AddressesMatched     int // allocations at the recorded address
	SegmentEvents        int // segments allocated, freed, mapped and unmapped
	SegmentEventsMatched int // segment events that were equal in order, address and size
	OOMs                 int
	OOMsMatched          int
	Blocks               int // blocks of the recorded final state
	BlocksMatched        int // blocks with equal address, size, requested size and state, in an equal segment

	RecordedPeaks Peaks // by the recorded events
	Peaks         Peaks // by the allocator's statistics
	AllocatedPeak int64 // bytes of allocated blocks, which events do not contain

	Retries int64 // requests that needed the whole cache freed first
	AtPeak  Usage // contents of the reserved memory when it first reached its peak

	DriverUse            // of the whole recording, priced by the cost model of sim.H200
	Before    *DriverUse // up to Options.SplitAt; nil if the run ended before that entry
	Refusals  int        // driver calls that failed for want of memory, as recorded

	Limit        int64 // bytes that could be reserved; 0 without a limit
	Restored     int   // blocks that were placed as recorded, because a graph pool was restored
	Painted      int   // blocks that were written and compared on Options.Device
	PaintedBytes int64 // bytes of painted blocks

	LimitFound bool        // Limit was not given, but derived from garbage collections
	Difference *Difference // the first difference; nil if there is none
	Exact      bool        // no difference was found
	Notes      []string    // assumptions about data that the file lacks, and settings without effect
}

// Peaks are the maxima of two sums, in bytes.
type Peaks struct {
	Requested int64 // requested bytes of active blocks
	Reserved  int64 // in segments and mapped pages
}

// A Difference is the first point where a replay left the recording.
type Difference struct {
	Device int
	Entry  int    // index into Trace.Events; -1 if the final state differs
	What   string // the recorded and the actual event or state
}

func (d *Difference) String() string {
	if d.Entry < 0 {
		return fmt.Sprintf("device %d, final state: %s", d.Device, d.What)
	}
	return fmt.Sprintf("device %d, trace entry %d: %s", d.Device, d.Entry, d.What)
}

// Options are conditions of the recording that the file does not contain.
type Options struct {
	// Config replaces the recorded settings if it is not nil.
	Config *caching.Config
	// Limit is the maximum of reserved bytes (for set_per_process_memory_fraction: that fraction of all memory). Zero
	// means no limit: then the driver's refusals are taken from the recording, and Verify searches for the limit that
	// garbage collection used.
	Limit int64
	// TotalMemory is the device's memory in bytes; 0 means an H200's. It decides how many addresses expandable segments
	// reserve, and what a memory fraction in the settings means.
	TotalMemory int64
	// Device, if not nil, is a device with enough memory for the reserved peak of the recording. An exact replay is
	// repeated with memory of the device behind the recorded addresses: every block is written when it is allocated,
	// and checked when its free completes or at the end. Blocks that changed are an error that wraps a *ContentsError.
	// All memory is freed afterwards.
	Device driver.Device

	// EmptiedAt are the entries, if known, at which the program itself emptied the cache. Verify first follows the
	// recording under that assumption.
	EmptiedAt []int

	// SplitAt is the entry up to which Verdict.Before counts.
	SplitAt int
}

// ErrLateStart is matched by the error for a recording that does not begin with the first allocation. The earlier
// blocks, which the file does not contain, affect where later ones are placed.
var ErrLateStart = errors.New("the recording does not start with the first allocation")

// ErrNoHistory is matched by the error for a snapshot without a trace.
var ErrNoHistory = errors.New("no allocation history in the snapshot; " +
	"call torch.cuda.memory._record_memory_history() before the first allocation")

// Verify replays every device of a snapshot with the driver's recorded choices (where segments went, which calls it
// refused) and the recorded completions of frees, under the recorded settings, and compares each event and the final
// state.
func Verify(s *snapshot.Snapshot, opts Options) (Verdict, error) {
	s = s.Expanded()
	var v Verdict
	cfg, notes, err := opts.conditions(s)
	if err != nil {
		return v, err
	}
	found := false
	for device, t := range s.Traces {
		if t == nil || len(t.Events) == 0 {
			continue
		}
		found = true
		one, err := verifyDevice(s, device, t, cfg, opts)
		if err != nil {
			return v, fmt.Errorf("device %d: %w", device, err)
		}
		v.merge(one)
	}
	if !found {
		return v, ErrNoHistory
	}
	v.Notes = append(notes, v.Notes...)
	v.Exact = v.Difference == nil
	return v, nil
}

// Device is Verify for one device of a snapshot, by its ordinal. The device must have a trace.
func Device(s *snapshot.Snapshot, device int, opts Options) (Verdict, error) {
	s = s.Expanded()
	cfg, notes, err := opts.conditions(s)
	if err != nil {
		return Verdict{}, err
	}
	if device < 0 || device >= len(s.Traces) || s.Traces[device] == nil || len(s.Traces[device].Events) == 0 {
		return Verdict{}, ErrNoHistory
	}
	v, err := verifyDevice(s, device, s.Traces[device], cfg, opts)
	v.Notes = append(notes, v.Notes...)
	v.Exact = err == nil && v.Difference == nil
	return v, err
}

// conditions returns the settings under which s is replayed, and sets the default memory size.
func (o *Options) conditions(s *snapshot.Snapshot) (cfg caching.Config, notes []string, err error) {
	if o.Config != nil {
		cfg = *o.Config
	} else if cfg, notes, err = RecordedConfig(s); err != nil {
		return cfg, nil, err
	}
	cfg.PyTorchExact = true
	if o.Limit > 0 {
		cfg.Limit = o.Limit
	}
	o.TotalMemory, err = capacity.Of(o.TotalMemory)
	return cfg, notes, err
}

// RecordedConfig returns the settings under which a snapshot was recorded, and notes about settings without effect
// here.
func RecordedConfig(s *snapshot.Snapshot) (caching.Config, []string, error) {
	cfg, notes, err := caching.ParseConfig(s.Settings.Conf)
	if err != nil {
		return cfg, nil, fmt.Errorf("the recorded settings: %w", err)
	}
	if s.Settings.Raw == nil {
		return cfg, notes, nil
	}
	// The fields are the settings at the end; the text may be that of an earlier call.
	cfg.MaxSplitSize = s.Settings.MaxSplitSize
	if cfg.MaxSplitSize < 0 {
		cfg.MaxSplitSize = caching.Unlimited
	}
	cfg.GarbageCollectionThreshold = s.Settings.GarbageCollectionThreshold
	cfg.ExpandableSegments = s.Settings.ExpandableSegments
	cfg.ReleaseLock = s.Settings.ReleaseLockOnCudaMalloc
	cfg.GraphCaptureRecordStreamReuse = s.Settings.GraphCaptureRecordStreamReuse
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
	v.Restored += o.Restored
	v.DriverUse.add(o.DriverUse)
	v.AtPeak.add(o.AtPeak)
	v.Refusals += o.Refusals
	v.Painted += o.Painted
	v.PaintedBytes += o.PaintedBytes
	v.Limit = max(v.Limit, o.Limit)
	v.LimitFound = v.LimitFound || o.LimitFound
	v.Notes = append(v.Notes, o.Notes...)
	if v.Difference == nil {
		v.Difference = o.Difference
	}
}

// PeaksEqual reports whether the peaks equal the recorded ones.
func (v *Verdict) PeaksEqual() bool { return v.Peaks == v.RecordedPeaks }

// verifyDevice searches for the conditions under which the allocator follows a recording, as far as the file leaves
// them open: the limit that garbage collection used, and the assumptions of a guess. It returns the verdict of the
// attempt that followed the recording furthest.
func verifyDevice(s *snapshot.Snapshot, device int, t *trace.Trace, cfg caching.Config, opts Options) (Verdict, error) {
	rec, err := newRecording(s, device, t, opts.TotalMemory)
	if err != nil {
		return Verdict{}, err
	}
	rec.splitAt = opts.SplitAt
	if len(opts.EmptiedAt) > 0 {
		g := newGuess()
		g.emptiedAt(t, opts.EmptiedAt)
		r, err := newVerifier(rec, cfg, g)
		if err != nil {
			return Verdict{}, err
		}
		if v, err := r.run(); err == nil && v.Difference == nil {
			v.Limit = cfg.Limit
			return v, v.paint(rec, cfg, g, opts.Device)
		}
	}
	limits := []int64{cfg.Limit}
	collects := cfg.GarbageCollectionThreshold > 0 && cfg.Limit == 0 && cfg.MemoryFraction == 1
	if collects {
		limits = limitCandidates(t, cfg.GarbageCollectionThreshold)
		if len(limits) > 1 {
			limits = append(limits, unknownLimit)
		}
	}
	var best Verdict
	left := maxAttempts
	// First try without hidden pools: they could explain too much.
	for i := range 2 * len(limits) {
		limit := limits[i%len(limits)]
		cfg.Limit, rec.mayHide = limit, i >= len(limits)
		if i == len(limits) || limit == unknownLimit {
			left = maxAttempts
		}
		v, g, err := search(rec, cfg, &left)
		if err != nil {
			return v, err
		}
		v.LimitFound = collects && limit > 0 && limit < unknownLimit
		if limit == unknownLimit {
			v.Limit = 0
		}
		v.noteAssumptions(g, limit)
		if i == 0 || v.further(&best, rec) {
			best = v
		}
		if v.Difference == nil {
			return v, v.paint(rec, cfg, g, opts.Device)
		}
	}
	if cfg.Limit > 0 && !collects {
		cfg.Limit, cfg.MemoryFraction, left = 0, 1, maxAttempts
		if cfg.GarbageCollectionThreshold > 0 {
			cfg.Limit = unknownLimit
		}
		if v, _, err := search(rec, cfg, &left); err == nil && v.Difference == nil {
			best.Notes = append(best.Notes, "under the refusals that were recorded the allocator follows this exactly: "+
				"the limit was another, or changed while it was recorded; verify without it")
		}
	}
	if rec.bothKinds {
		return best, fmt.Errorf("%w: at %v", ErrSettingsChanged, best.Difference)
	}
	return best, nil
}

// noteAssumptions adds notes about what a run under a limit took from the recording, or assumed.
func (v *Verdict) noteAssumptions(g *guess, limit int64) {
	note := func(format string, args ...any) { v.Notes = append(v.Notes, fmt.Sprintf(format, args...)) }
	if n := len(g.hidden); v.Difference == nil && n > 0 {
		note("%d segments, all of which were given back, are taken for private pools' (of graphs or MemPools): the file "+
			"does not name those; what was chosen within them is checked, which of them was chosen is not", n)
	}
	if limit == unknownLimit {
		note("the memory limit, which the file does not name, changed while this was recorded: what garbage collection " +
			"gave back is taken from the recording")
	}
	if n := len(g.changes); n > 0 {
		note("expandable_segments was switched %d times while this was recorded: the file names only the last settings", n)
	}
	if v.Restored > 0 {
		note("%d blocks were placed as recorded: graph pools were restored to earlier states, which is no request",
			v.Restored)
	}
}

// paint repeats an exact run with memory of dev behind the addresses, if dev is not nil.
func (v *Verdict) paint(rec *recording, cfg caching.Config, g *guess, dev driver.Device) error {
	if dev == nil {
		return nil
	}
	again, err := newVerifier(rec, cfg, g)
	if err != nil {
		return err
	}
	b, err := newBacking(dev, func() int { return again.call })
	if err != nil {
		return err
	}
	again.dev.backing = b
	repeated, err := again.run()
	if err == nil && repeated.Difference != nil && b.err == nil {
		err = fmt.Errorf("check contents: the run that was to be checked differs: %v", repeated.Difference)
	}
	err = errors.Join(err, b.end())
	v.Painted, v.PaintedBytes = b.blocks, b.bytes
	return err
}

// ErrSettingsChanged is matched by the error for a recording during which the settings changed, in a way that the file
// does not contain.
var ErrSettingsChanged = errors.New("the settings changed while this was recorded (it has ordinary and expandable " +
	"segments), and the file names only the last ones; the allocator leaves the recording")

// further reports whether v followed the recording further than o: to a later entry, or to more of the final state.
func (v *Verdict) further(o *Verdict, rec *recording) bool {
	at, other := v.Difference.position(rec), o.Difference.position(rec)
	return at > other || at == other && v.BlocksMatched > o.BlocksMatched
}

// describe formats an event for a difference.
func describe(action mem.Action, ptr driver.Pointer, size int64, stream uint64) string {
	switch action {
	case mem.ActionOOM:
		return fmt.Sprintf("oom of %d bytes on stream %d", size, stream)
	default:
		return fmt.Sprintf("%s of %d bytes at %#x on stream %d", action, size, ptr, stream)
	}
}
