package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// A story is a snapshot made from a fuzz target's input, with what must be read from it.
type story struct {
	file   D
	sizes  [][]int64 // of the entries of each device
	blocks []int     // of each segment
	wrong  string    // where the first wrong value is; empty if there is none
}

// tell makes a story. Most values are right. At most one is wrong: of another type, negative, or missing.
func tell(in *testkit.Input) (s story) {
	spoil := func(d D, place string, keys ...string) D {
		if in.N(24) != 23 || s.wrong != "" {
			return d
		}
		key := testkit.Choose(in, keys...)
		s.wrong = place + key
		optional := key == "stream" && strings.HasPrefix(place, "segment ")
		if in.N(4) == 3 && !optional {
			s.wrong += ": missing"
			return with(d, key, omit)
		}
		return with(d, key, testkit.Choose[any](in, 1.5, L{}, nil, D{}))
	}
	frames := func() L {
		all := L{}
		for range in.N(3) {
			all = append(all, D{"name", testkit.Choose(in, "f", "g", ""), "filename", "x.py", "line", int(in.Byte())})
		}
		return all
	}
	traces := L{}
	for device := range 1 + in.N(2) {
		entries := L{}
		var sizes []int64
		for i := range in.N(6) {
			size := int64(in.Byte()) * 512
			e := D{
				"action", testkit.Choose(in, "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"),
				"addr", 0x1000 * in.N(8), "size", size, "stream", testkit.Choose[any](in, 0, 7, uint64(1<<63)), "time_us", int(in.Byte()), "frames", frames(),
			}
			if in.N(4) == 3 {
				e = append(e, "pool_id", T{in.N(2), in.N(3)})
			}
			if in.N(4) == 3 {
				e = append(e, "user_metadata", testkit.Choose(in, "", "epoch 1"))
			}
			if in.N(4) == 3 {
				e = append(e, testkit.Choose(in, "x", "y"), testkit.Choose[any](in, 1, "text", L{1, D{"k", nil}}, 0.5))
			}
			entries = append(entries, spoil(e, fmt.Sprintf("device %d, trace entry %d: ", device, i), "action", "addr", "size", "stream"))
			sizes = append(sizes, size)
		}
		traces, s.sizes = append(traces, entries), append(s.sizes, sizes)
	}
	segments := L{}
	for i := range in.N(4) {
		at, end := 0x1000*(i+1), 0x1000*(i+1)
		blocks := L{}
		for range in.N(4) {
			size := 512 * (1 + in.N(3))
			b := D{"address", end, "size", size, "requested_size", size - in.N(2), "state", testkit.Choose(in, "active_allocated", "inactive"), "frames", frames()}
			end += size
			blocks = append(blocks, spoil(b, fmt.Sprintf("device 0, segment %d, block %d: ", i, len(blocks)), "size", "state"))
		}
		s.blocks = append(s.blocks, len(blocks))
		g := with(segment, "address", at, "total_size", max(end-at, 512), "stream", in.N(2), "blocks", blocks)
		segments = append(segments, spoil(g, fmt.Sprintf("segment %d: ", i), "total_size", "stream", "segment_type", "device"))
	}
	s.file = D{"segments", segments, "device_traces", traces}
	if in.N(3) == 2 {
		s.file = append(s.file, "allocator_settings", D{"max_split_size", -1, "x", in.N(3)})
	}
	return s
}

// A snapshot is read as what its file says, in every protocol, and keeps that when it is written. The error of one with
// a wrong value names the value's place.
func FuzzGrammar(f *testing.F) {
	f.Add([]byte{0, 3, 4, 0, 1, 0, 9, 2, 0, 5, 1, 7, 3, 1, 1, 3, 1, 3, 0, 0, 0, 4, 1, 1, 0, 8, 0})
	f.Add([]byte{1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 23, 2, 3, 2, 1, 2, 0, 0, 0, 1, 1, 0, 2})
	f.Add([]byte{0, 0, 2, 1, 1, 0, 0, 0, 0, 0, 2, 2, 1, 1, 1, 23, 1, 2})
	f.Fuzz(func(t *testing.T, input []byte) {
		in := &testkit.Input{Rest: input}
		protocol := 2 + in.N(4)
		want := tell(in)
		file := snapshottest.Pickle(want.file, protocol)
		var s *snapshot.Snapshot
		var err error
		testkit.AllocatesAtMost(t, len(file), 200, 2<<20, func() { s, err = snapshot.ReadBytes(file) })
		if want.wrong != "" {
			var said *snapshot.Error
			if !errors.As(err, &said) || !strings.Contains(err.Error(), want.wrong) {
				t.Fatalf("%v\n%v, want an error of %q", want.file, err, want.wrong)
			}
			return
		}
		testkit.Must(t, err)
		for device, sizes := range want.sizes {
			if len(sizes) == 0 {
				continue
			}
			events := s.Traces[device].Events
			if len(events) != len(sizes) {
				t.Fatalf("device %d: %d entries, want %d", device, len(events), len(sizes))
			}
			for i, size := range sizes {
				if events[i].Size != size {
					t.Fatalf("device %d, entry %d: %d bytes, want %d", device, i, events[i].Size, size)
				}
			}
		}
		for i, blocks := range want.blocks {
			if got := len(s.Segments[i].Blocks); got != blocks {
				t.Fatalf("segment %d: %d blocks, want %d", i, got, blocks)
			}
		}
		b := pickled(t, s)
		again, err := snapshot.ReadBytes(b)
		testkit.Must(t, err)
		if d := difference(s, again); d != "" {
			t.Fatalf("written and read again: %s", d)
		}
		if !bytes.Equal(pickled(t, again), b) {
			t.Fatal("written again it is another")
		}
	})
}
