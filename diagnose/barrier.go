package diagnose

import (
	"fmt"

	"github.com/ashlar-go/ashlar/replay"
)

// A Barrier is the memory that a process could reserve when a request failed.
type Barrier struct {
	// ByLimit says that a limit of the process refused the request: the GPU had room for it. Otherwise the GPU refused.
	ByLimit bool

	// AtLeast and Below bound the bytes that the process could reserve: at least AtLeast, and less than Below. Known
	// means that they are exact, and then Below is AtLeast+1.
	AtLeast, Below int64
	Known          bool

	Required  int64 // bytes of the live blocks and of the failed request
	Reachable int64 // bytes that the process could have had without a limit: its reserved memory and the free memory
	Free      int64 // free bytes of the GPU

	// Memory is all of the memory of the GPU, or 0 if it is unknown. Others is the part of it that was neither free nor
	// reserved by the process.
	Memory, Others int64
}

// likely returns the likeliest number of bytes that the process could reserve.
func (b *Barrier) likely() int64 { return b.AtLeast + (b.Below-1-b.AtLeast)/2 }

// tight reports whether even an allocator that wastes nothing would have filled nearly all of the memory.
func (b *Barrier) tight() bool { return float64(b.Required) > 0.9*float64(b.likely()) }

// Limit returns the limit of the process in bytes, with an upper bound: it is less than below. If it is exactly known,
// below is limit+1. It is 0 if there was none or none is known.
func (r *Report) Limit() (limit, below int64) {
	switch {
	case r.Barrier.ByLimit:
		return r.Barrier.AtLeast, r.Barrier.Below
	case r.knownLimit > 0:
		return r.knownLimit, r.knownLimit + 1
	}
	return 0, 0
}

// findBarrier sets Report.Barrier.
func (x *explainer) findBarrier() error {
	f := x.r.Failure
	b := &x.r.Barrier
	*b = Barrier{
		Required: f.Requested + f.Size, Reachable: f.Reserved + f.Free, Free: f.Free, Memory: x.memory(),
	}
	switch {
	case x.opts.Limit > 0 && x.opts.Limit < x.w.RecordedReserved:
		return fmt.Errorf("diagnose: a limit of %d bytes: the recorded run reserved %d; want more, or 0 if it is unknown",
			x.opts.Limit, x.w.RecordedReserved)
	case x.opts.Limit > 0 && x.opts.Limit < b.Reachable:
		b.ByLimit, b.Known, b.AtLeast = true, true, x.opts.Limit
	case f.Limit > 0 && f.Limit < b.Reachable:
		b.ByLimit, b.Known, b.AtLeast = true, true, f.Limit
	case f.Below > 0:
		b.ByLimit, b.AtLeast, b.Below = true, x.w.RecordedLimit, f.Below
		b.Below = max(b.Below, b.AtLeast+1)
		return nil
	default:
		b.Known, b.AtLeast = true, b.Reachable
	}
	b.Below = b.AtLeast + 1
	if b.Memory > 0 {
		b.Others = max(0, b.Memory-b.Reachable)
	}
	return nil
}

// MemoryKey is the key of a snapshot's dict with the memory of the GPUs, which PyTorch does not write but a program can
// add: a list with a dict for each device, with the keys device (its number), free and total (bytes), as
// torch.cuda.mem_get_info returns them.
const MemoryKey = "device_memory"

// memory returns the memory of the GPU, or 0 if it is unknown.
func (x *explainer) memory() int64 {
	if x.opts.Memory > 0 {
		return x.opts.Memory
	}
	if o := x.s.OutOfMemory; o != nil && o.Facts != nil && o.Facts.Device == x.w.Device && o.Facts.Total > 0 {
		return o.Facts.Total // a report of snapshot.ReportOOM
	}
	value, _ := x.s.Extra.Get(MemoryKey)
	list, _ := value.([]any)
	for _, item := range list {
		dict, _ := item.(map[string]any)
		device, isDevice := dict["device"].(int64)
		total, isTotal := dict["total"].(int64)
		if isDevice && isTotal && device == int64(x.w.Device) {
			return max(total, 0)
		}
	}
	return 0
}

// judgeDevice names the cause when the GPU refused a request that no allocator could have served.
func (x *explainer) judgeDevice() error {
	b := &x.r.Barrier
	switch {
	case b.Memory > 0 && b.Others > ownOverhead:
		fits, err := x.trials.fits(replay.AsRecorded, x.trials.program, b.Memory-ownOverhead)
		if err != nil {
			return err
		}
		if fits {
			x.say(OtherProcesses, Certain, "The GPU has %s, of which this process could have %s. A replay with the "+
				"whole GPU completes.", FormatSize(b.Memory), FormatSize(b.Reachable))
			return nil
		}
	case b.Memory == 0 && x.w.RecordedLimit > b.Reachable+ownOverhead/3:
		x.say(OtherProcesses, Certain, "The process could have %s in all when the request failed, but %s at another "+
			"time. Other processes, or other libraries of this one, had the rest.", FormatSize(b.Reachable),
			FormatSize(x.w.RecordedLimit))
		return nil
	case b.Memory == 0 && !x.ownsGPU():
		x.say(OtherProcesses, Likely, "The process could have %s in all, which is the size of no usual GPU. Other "+
			"processes, or other libraries of this one, hold the rest. The recording does not have the size of the "+
			"GPU: --memory gives it.", FormatSize(b.Reachable))
		return nil
	}
	sure, text := Certain, "No setting of the allocator can serve that."
	if b.Memory == 0 {
		sure = Likely
	}
	if b.Required <= b.AtLeast {
		text = "An allocator that wastes nothing would fill nearly all of it."
	}
	whole := ""
	if b.Memory == 0 {
		whole = ", which is about the size of a usual GPU"
	}
	x.say(TooMuch, sure, "The live blocks and the request need %s, and the process could have %s%s. %s",
		FormatSize(b.Required), FormatSize(b.Reachable), whole, text)
	return nil
}
