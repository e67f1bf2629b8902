package replay_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/replay"
)

// The remedies named by a failure do help: rows with that setting get past the request. Settings that do not help are
// not named.
func TestDefect04_RemediesAgreeWithTheRows(t *testing.T) {
	w := works(t, "gpt2.oom")[0]
	specs := []string{replay.AsRecorded, "caching:expandable_segments:True"}
	for limit, helps := range map[int64]bool{0: false, 19541098496: true} { // 18.03 GiB, as recorded, and 18.2 GiB
		c := compare(t, w, replay.CompareOptions{Specs: specs, Limit: limit})
		recorded, expandable := &c.Rows[0], &c.Rows[1]
		if expandable.Completed() != helps {
			t.Fatalf("within %d the row %s completes: %v", c.Limit, expandable.Allocator, expandable.Completed())
		}
		text := recorded.Failure.Err.Error()
		if strings.Contains(text, "would have fitted with expandable_segments:True") != helps || strings.Contains(text, "by estimate") {
			t.Errorf("within %d the row with expandable segments completes: %v; and the failure says:\n%s", c.Limit, helps, text)
		}
		if !strings.Contains(text, "your own limit of "+mem.FormatSize(c.Limit)+" was reached, the GPU had 123.14 GiB free") {
			t.Errorf("the failure does not say that the limit was its cause:\n%s", text)
		}
	}
	// The device itself had room when this was recorded.
	if f := w.Failures[0]; f.Below <= f.Reserved+f.Size || f.Below > f.Reserved+f.Size+4<<20 {
		t.Errorf("the limit was below %d with %d reserved and %d asked for", f.Below, f.Reserved, f.Size)
	}
}

// Every allocator reports whether the limit or the device refused a request.
func TestDefect04_EveryAllocatorNamesTheLimitThatRefused(t *testing.T) {
	w := scriptWork(t, "alloc a 40MiB\nalloc b 40MiB\n")
	for _, spec := range []string{"caching", "caching:expandable_segments:True", "bfc", "bfc:virtual=on", "arena", "arena:page=2MiB", "paged", "planned", "direct"} {
		for limit, capacity := range map[int64]int64{64 << 20: 1 << 30, 0: 64 << 20} {
			c := compare(t, w, replay.CompareOptions{Specs: []string{spec}, Limit: limit, Capacity: capacity})
			var oom *mem.OutOfMemory
			if f := c.Rows[0].Failure; f == nil || !errors.As(f.Err, &oom) {
				t.Errorf("%s: 80 MiB in 64: %+v", spec, c.Rows[0])
				continue
			}
			text := oom.Error()
			if strings.Contains(text, "your own limit of 64.00 MiB was reached, the GPU had ") != (limit > 0) || (oom.Needed > 64<<20) != (limit > 0) {
				t.Errorf("%s within %d of %d bytes:\n%s", spec, limit, capacity, text)
			}
			if limit == 0 && !strings.Contains(text, "live blocks leave too little room") {
				t.Errorf("%s on a device of %d bytes:\n%s", spec, capacity, text)
			}
		}
	}
}

// The memory of a plan and its fallback is reported as one figure: the limit applies to both together.
func TestDefect04_ARowOfAPlanTellsOfRegionAndFallback(t *testing.T) {
	w := scriptWork(t, "alloc a 40MiB\nalloc b 40MiB\n")
	p := *w.Program
	p.Ops, p.Blocks = p.Ops[:1], 1
	plan, err := planned.Make(t.Context(), &p, planned.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := planFile(t, plan)
	for _, limit := range []int64{40 << 20, 64 << 20} { // with nothing left for the fallback, and with some
		c := compare(t, w, replay.CompareOptions{Specs: []string{"planned:" + path}, Limit: limit})
		var oom *mem.OutOfMemory
		if f := c.Rows[0].Failure; f == nil || !errors.As(f.Err, &oom) {
			t.Fatalf("80 MiB within %d: %+v", limit, c.Rows[0])
		}
		if oom.Allowed != limit || oom.Allocated != 40<<20 || oom.Reserved != 40<<20 || oom.Needed != 80<<20 || oom.Total != c.Capacity ||
			!strings.Contains(oom.Error(), "your own limit of "+mem.FormatSize(limit)+" was reached") {
			t.Errorf("within %d:\n%v", limit, oom)
		}
	}
}
