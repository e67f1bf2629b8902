package snapshot_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// share returns a file in which one list stands in a place twice.
func share(key string) []byte {
	var b bytes.Buffer
	p := snapshottest.NewPickler(&b, 4)
	p.Dict()
	p.Mark()
	switch key {
	case "device_traces":
		p.Key("device_traces")
		p.List()
		p.Mark()
		list := p.List()
		p.Mark()
		p.Dict()
		p.Mark()
		for _, k := range []string{"addr", "size", "stream"} {
			p.Key(k)
			p.Int(0)
		}
		p.Key("action")
		p.Key("alloc")
		p.SetItems()
		p.Appends()
		p.Get(list)
		p.Appends()
	case "segments", "blocks":
		p.Key("segments")
		p.List()
		p.Mark()
		var blocks uint32
		for i := range 2 {
			segment := p.Dict()
			p.Mark()
			p.Key("device")
			p.Int(0)
			p.Key("address")
			p.Int(0)
			p.Key("total_size")
			p.Int(512)
			p.Key("segment_type")
			p.Key("small")
			p.Key("blocks")
			if i == 1 {
				p.Get(blocks)
			} else {
				blocks = p.List()
				p.Dict()
				p.Mark()
				p.Key("size")
				p.Int(512)
				p.Key("state")
				p.Key("inactive")
				p.SetItems()
				p.Append()
			}
			p.SetItems()
			if key == "segments" {
				p.Get(segment)
				break
			}
		}
		p.Appends()
	}
	p.SetItems()
	if err := p.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// repeat returns a file in which one dict, which could have any number of keys, stands in a place twice.
func repeat(place string) []byte {
	var b bytes.Buffer
	p := snapshottest.NewPickler(&b, 4)
	// dict writes a dict of what is in it; values are ints, strs and functions that write what they like.
	dict := func(pairs ...any) uint32 {
		d := p.Dict()
		p.Mark()
		for i := 0; i < len(pairs); i += 2 {
			p.Key(pairs[i].(string))
			switch v := pairs[i+1].(type) {
			case int:
				p.Int(int64(v))
			case string:
				p.Key(v)
			case func():
				v()
			}
		}
		p.SetItems()
		return d
	}
	list := func(item func()) {
		p.List()
		p.Mark()
		item()
		p.Appends()
	}
	twice := func(pairs ...any) func() {
		return func() { list(func() { p.Get(dict(pairs...)) }) }
	}
	segment := func(blocks func()) func() {
		return func() {
			list(func() {
				dict("device", 0, "address", 0, "total_size", 1024, "segment_type", "small", "blocks", blocks)
			})
		}
	}
	switch place {
	case "annotations":
		dict("segments", func() { p.List() }, "external_annotations", twice("name", "x", "time_us", 1))
	case "blocks":
		dict("segments", segment(twice("size", 512, "state", "inactive")))
	case "history":
		var past uint32
		first := func() { list(func() { past = dict("real_size", 5) }) }
		again := func() { list(func() { p.Get(past) }) }
		dict("segments", segment(func() {
			list(func() {
				dict("size", 512, "state", "inactive", "history", first)
				dict("size", 512, "state", "inactive", "history", again)
			})
		}))
	case "entries":
		dict("device_traces", func() { list(twice("action", "new in some later version")) })
	case "frames":
		frame := []any{"name", "f", "filename", "x.py", "line", 1}
		for i := range 100 {
			frame = append(frame, fmt.Sprint("more", i), i)
		}
		dict("device_traces", func() {
			list(func() {
				list(func() {
					dict("action", "alloc", "addr", 0, "size", 1, "stream", 0, "frames", twice(frame...))
				})
			})
		})
	case "settings", "statistics":
		key := map[string]string{"settings": "allocator_settings", "statistics": "memory_stats"}[place]
		var d uint32
		dict("segments", func() { p.List() }, key, func() { d = dict("a", 1) }, key, func() { p.Get(d) })
	case "roundings":
		var d uint32
		key := "roundup_power2_divisions"
		dict("segments", func() { p.List() }, "allocator_settings", func() {
			dict(key, func() { d = dict("1", 2) }, key, func() { p.Get(d) })
		})
	}
	if err := p.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestSharingCannotMultiply(t *testing.T) {
	for key, want := range map[string]string{
		"device_traces": "device 1: device_traces: the same list as that of an earlier device",
		"segments":      "segment 1: the same dict as an earlier segment",
		"blocks":        "device 0, segment 1: blocks: the same list as that of an earlier segment",
	} {
		_, err := snapshot.ReadBytes(share(key))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", key, err, want)
		}
	}
}

// A file of n references to a dict of n keys is not read in n*n steps: the second reference is an error, or costs no more
// than a number.
func TestDictsAreReadOnce(t *testing.T) {
	for place, want := range map[string]string{
		"annotations": "annotation 1: the same dict as an earlier one",
		"blocks":      "device 0, segment 0, block 1: the same dict as an earlier block",
		"history":     "device 0, segment 0, block 1, history: the same dict as that of an earlier block",
		"entries":     "device 0, trace entry 1: the same dict as an earlier entry",
		"settings":    "allocator_settings: the same dict as an earlier one",
		"statistics":  "memory_stats: the same dict as an earlier one",
		"roundings":   "allocator_settings: roundup_power2_divisions: the same dict as an earlier one",
	} {
		_, err := snapshot.ReadBytes(repeat(place))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", place, err, want)
		}
	}
	s, err := snapshot.ReadBytes(repeat("frames")) // which stacks may share
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Stacks.Frames); n != 1 {
		t.Errorf("%d frames", n)
	}
}
