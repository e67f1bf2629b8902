package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
)

// blocks reads the blocks of a segment, which must lie in it and not overlap.
func (im *importer) blocks(place string, s *Segment, v pickle.Value) ([]Block, error) {
	list, err := im.list(place, "blocks", v)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if !im.once(v) {
		return nil, &Error{Place: place, Field: "blocks", Reason: "the same list as that of an earlier segment"}
	}
	blocks := make([]Block, 0, len(list))
	next := s.Ptr // the start of a block without an address
	for i, v := range list {
		where := fmt.Sprintf("%s, block %d", place, i)
		pairs, err := im.dict(where, v)
		if err != nil {
			return nil, err
		}
		if !im.once(v) {
			return nil, &Error{Place: where, Reason: "the same dict as an earlier block"}
		}
		b := Block{Ptr: next}
		if err := im.block(where, &b, pairs); err != nil {
			return nil, err
		}
		if offset := uint64(b.Ptr - s.Ptr); offset > uint64(s.TotalSize) || b.Size > s.TotalSize-int64(offset) {
			return nil, &Error{Place: where, Field: "address", Reason: fmt.Sprintf(
				"[%#x, +%d) lies outside its segment [%#x, +%d)", uint64(b.Ptr), b.Size, uint64(s.Ptr), s.TotalSize)}
		}
		next = b.Ptr + driver.Pointer(b.Size)
		blocks = append(blocks, b)
	}
	slices.SortStableFunc(blocks, func(a, b Block) int { return cmp.Compare(a.Ptr, b.Ptr) })
	for i := 1; i < len(blocks); i++ {
		if before := blocks[i-1]; blocks[i].Ptr-before.Ptr < driver.Pointer(before.Size) {
			return nil, &Error{Place: place, Field: "blocks", Reason: fmt.Sprintf(
				"the block [%#x, +%d) overlaps the block [%#x, +%d)",
				uint64(blocks[i].Ptr), blocks[i].Size, uint64(before.Ptr), before.Size)}
		}
	}
	return blocks, nil
}

// block reads one block. Files from before PyTorch 2.1 have no address, and keep size and stack in a history.
func (im *importer) block(place string, b *Block, pairs []pickle.Value) error {
	var history pickle.Value
	r := reading{im: im}
	r.fields("block ", pairs, func(key string, v pickle.Value) bool {
		switch key {
		case "address":
			b.Ptr = driver.Pointer(r.bits(key, v))
		case "size":
			if b.Size = r.size(key, v); b.Size == 0 {
				r.note(&problem{field: key, reason: "a block of no bytes"})
			}
		case "requested_size":
			b.RequestedSize = r.size(key, v)
		case "state":
			switch state := r.text(key, v); state {
			case "active_allocated":
				b.State = mem.ActiveAllocated
			case "active_pending_free", "active_awaiting_free": // both are in use
				b.State = mem.ActivePendingFree
			case "inactive":
				b.State = mem.Inactive
			default:
				r.note(&problem{field: key, reason: "no such state: " + quote(state)})
			}
		case "frames":
			b.Stack = r.stack(key, v)
		case "history":
			history = v
		default:
			return false
		}
		return true
	})
	r.require("size", "state")
	if r.bad != nil {
		return r.bad.at(place)
	}
	var err error
	if b.Extra, err = im.extra(r.unknown); err != nil {
		return err
	}
	if history != 0 {
		if err := im.history(place, b, history); err != nil {
			return err
		}
	}
	if b.Stack, err = im.stackOf(b.Stack); err != nil {
		return within(place, err)
	}
	return nil
}

// history reads the requested size of the last user of a block from the first entry. A block in use has one entry only.
// A history with further keys is also kept whole.
func (im *importer) history(place string, b *Block, v pickle.Value) error {
	place += ", history"
	list, err := im.list(place, "", v)
	if err != nil || len(list) == 0 {
		return err
	}
	pairs, err := im.dict(place, list[0])
	if err != nil {
		return err
	}
	if !im.once(list[0]) {
		return &Error{Place: place, Reason: "the same dict as that of an earlier block"}
	}
	r := reading{im: im}
	r.fields("history ", pairs, func(key string, v pickle.Value) bool {
		switch key {
		case "real_size":
			b.RequestedSize = r.size(key, v)
		case "frames":
			b.Stack = r.stack(key, v)
		case "addr":
		default:
			return false
		}
		return true
	})
	if r.bad != nil {
		return r.bad.at(place)
	}
	if len(list) > 1 || len(r.unknown) > 0 {
		whole, err := im.plain(v)
		if err != nil {
			return err
		}
		b.Extra = &Extra{append(b.Extra.pairs(), pickle.Pair{Key: "history", Value: whole})}
		b.Extra.sort()
	}
	return nil
}
