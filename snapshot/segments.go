package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// segments reads the list of segments of all devices.
func (im *importer) segments(s *Snapshot, v pickle.Value) error {
	list, err := im.list("", "segments", v)
	if err != nil {
		return err
	}
	s.Segments = make([]Segment, 0, len(list))
	for i, v := range list {
		place := fmt.Sprintf("segment %d", i)
		pairs, err := im.dict(place, v)
		if err != nil {
			return err
		}
		if !im.once(v) {
			return &Error{Place: place, Reason: "the same dict as an earlier segment"}
		}
		seg, err := im.segment(place, pairs)
		if err != nil {
			return err
		}
		s.Segments = append(s.Segments, seg)
	}
	slices.SortStableFunc(s.Segments, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Ptr, b.Ptr))
	})
	return nil
}

// A reading reads the fields of one dict and keeps the first error.
type reading struct {
	im      *importer
	seen    []string
	unknown []pickle.Value // keys and values in turn
	drops   bool           // unknown keys are not kept
	bad     *problem
}

func (r *reading) bits(key string, v pickle.Value) uint64 {
	x, bad := bits(r.im.doc, key, v)
	r.note(bad)
	return x
}

func (r *reading) size(key string, v pickle.Value) int64 {
	x, bad := size(r.im.doc, key, v)
	r.note(bad)
	return x
}

func (r *reading) text(key string, v pickle.Value) string {
	s, ok := r.im.doc.Str(v)
	if !ok {
		r.note(wrongType(key, "a str", v))
	}
	return s
}

func (r *reading) boolean(key string, v pickle.Value) bool {
	b, ok := v.Bool()
	if !ok {
		r.note(wrongType(key, "a bool", v))
	}
	return b
}

func (r *reading) stack(key string, v pickle.Value) trace.StackID {
	id, bad := framesOf(r.im.doc, v)
	r.note(bad)
	return id
}

func (r *reading) note(bad *problem) {
	if r.bad == nil {
		r.bad = bad
	}
}

// fields calls one for each str key. If one returns false, the key is unknown: it is counted and kept.
func (r *reading) fields(of string, pairs []pickle.Value, one func(key string, v pickle.Value) bool) {
	for i := 0; i+1 < len(pairs) && r.bad == nil; i += 2 {
		if key, ok := r.im.doc.Str(pairs[i]); ok && one(key, pairs[i+1]) {
			r.seen = append(r.seen, key)
			continue
		}
		if r.drops {
			r.im.skipped.drop(of+keyName(r.im.doc, pairs[i]), 1)
			continue
		}
		r.im.skipped.key(r.im.doc, of, pairs[i], 1)
		r.unknown = append(r.unknown, pairs[i], pairs[i+1])
	}
}

func (r *reading) require(keys ...string) {
	for _, key := range keys {
		if !slices.Contains(r.seen, key) {
			r.note(&problem{field: key, reason: "missing"})
		}
	}
}

// segment reads one segment.
func (im *importer) segment(place string, pairs []pickle.Value) (Segment, error) {
	var s Segment
	var blocks pickle.Value
	r := reading{im: im}
	r.fields("segment ", pairs, func(key string, v pickle.Value) bool {
		switch key {
		case "device":
			s.Device = int(r.size(key, v))
			if s.Device >= maxDevices {
				r.note(&problem{field: key, reason: fmt.Sprintf("%d: the limit is %d", s.Device, maxDevices-1)})
			}
		case "address":
			s.Ptr = driver.Pointer(r.bits(key, v))
		case "total_size":
			s.TotalSize = r.size(key, v)
		case "allocated_size":
			s.AllocatedSize = r.size(key, v)
		case "active_size":
			s.ActiveSize = r.size(key, v)
		case "requested_size":
			s.RequestedSize = r.size(key, v)
		case "stream":
			s.Stream = r.bits(key, v)
		case "segment_type":
			switch kind := r.text(key, v); kind {
			case "large", "small":
				s.Large = kind == "large"
			default:
				r.note(&problem{field: key, reason: `want "large" or "small", got ` + quote(kind)})
			}
		case "segment_pool_id":
			var bad *problem
			s.Pool, bad = poolID(im.doc, key, v)
			r.note(bad)
		case "is_expandable":
			s.Expandable = r.boolean(key, v)
		case "frames":
			s.Stack = r.stack(key, v)
		case "blocks":
			blocks = v
		default:
			return false
		}
		return true
	})
	r.require("device", "address", "total_size", "segment_type", "blocks")
	if r.bad != nil {
		return s, r.bad.at(place)
	}
	place = fmt.Sprintf("device %d, %s", s.Device, place)
	if s.Ptr+driver.Pointer(s.TotalSize) < s.Ptr {
		return s, &Error{Place: place, Field: "total_size", Reason: "the segment runs over the end of the addresses"}
	}
	var err error
	if s.Stack, err = im.stackOf(s.Stack); err != nil {
		return s, within(place, err)
	}
	if s.Extra, err = im.extra(r.unknown); err != nil {
		return s, err
	}
	if s.Blocks, err = im.blocks(place, &s, blocks); err != nil {
		return s, err
	}
	if !slices.Contains(r.seen, "allocated_size") || !slices.Contains(r.seen, "active_size") {
		s.AllocatedSize, s.ActiveSize, _ = s.sums()
	}
	return s, nil
}

// sums returns the total sizes of the blocks of a segment.
func (s *Segment) sums() (allocated, active, requested int64) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.State == mem.ActiveAllocated {
			allocated += b.Size
		}
		if b.State != mem.Inactive {
			active += b.Size
			requested += b.RequestedSize
		}
	}
	return allocated, active, requested
}
