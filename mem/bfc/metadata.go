package bfc

import (
	"fmt"
	"strconv"
)

// A Note describes the origin of a request, for the metadata of the allocation: TensorFlow's annotations.
type Note struct {
	Op       string // operation of the graph; empty is written as (null)
	Step     int64
	Region   string // kind of memory: temp, output, persist/dynamic
	DataType int    // TensorFlow's number
	Shape    string
}

// ObserveMetadata sets the receiver of a line for each block that is allocated or freed, in the encoding of
// TensorFlow's profiler for its memory viewer. Nil removes the receiver. A line looks like
//
//	MemoryAllocation#allocator_name=bfc,bytes_reserved=0,bytes_allocated=512,...#
//
// The keys are, in order: allocator_name; bytes_reserved (of stacks, always 0); bytes_allocated (live); bytes_available
// (the limit less those); fragmentation; peak_bytes_in_use; requested_bytes; allocation_bytes; addr; tf_op, id,
// region_type, data_type and shape (of the Note). The receiver runs under the allocator's lock: it must be quick and
// must not call the allocator. While there is a receiver, each call allocates on the heap.
func (a *Allocator) ObserveMetadata(to func(line string)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.metadata = to
}

func (a *Allocator) notifyMetadata(event string, r *block, note Note) {
	if a.metadata == nil {
		return
	}
	if note.Op == "" {
		note.Op = "(null)"
	}
	inUse := a.stats.AllocatedBytes.All
	a.metadata(fmt.Sprintf("%s#allocator_name=%s,bytes_reserved=0,bytes_allocated=%d,bytes_available=%d,fragmentation=%s,"+
		"peak_bytes_in_use=%d,requested_bytes=%d,allocation_bytes=%d,addr=%d,tf_op=%s,id=%d,region_type=%s,data_type=%d,shape=%s#",
		event, a.cfg.Name, inUse.Current, a.cfg.Limit-inUse.Current, strconv.FormatFloat(a.fragmentation(), 'g', 6, 64),
		inUse.Peak, r.requested, r.size, uint64(r.ptr), note.Op, note.Step, note.Region, note.DataType, note.Shape))
}
