package replay

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

// An outputPiece is text, preceded by an address if ptr is not 0.
type outputPiece struct {
	ptr  driver.Pointer
	text string
}

// flush appends the printed pieces to the text, now that the lowest address is known.
func (r *ScriptRun) flush() {
	for _, p := range r.out {
		if p.ptr != 0 {
			r.text = fmt.Appendf(r.text, "0x%03x", p.ptr-r.base)
		}
		r.text = append(r.text, p.text...)
	}
	r.out = r.out[:0]
}

func (r *ScriptRun) stats(keys []string) error {
	s, ok := mem.Find[mem.StatsReporter](r.alloc)
	if !ok {
		return errors.New("stats: the allocator has no statistics")
	}
	values := s.Stats().Map()
	if len(keys) == 0 {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if values[key] != 0 {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		v, ok := values[key]
		if !ok {
			return fmt.Errorf("stats: no such key %q; stats alone prints all that are not 0", key)
		}
		r.print("%s %d\n", key, v)
	}
	return nil
}

func (r *ScriptRun) print(format string, args ...any) { r.printAddress(0, format, args...) }

// printAddress prints the offset of an address and then text. The offset is computed when the lowest address is known.
func (r *ScriptRun) printAddress(p driver.Pointer, format string, args ...any) {
	if p != 0 && (r.base == 0 || p < r.base) {
		r.base = p
	}
	r.out = append(r.out, outputPiece{p, fmt.Sprintf(format, args...)})
}

// snapshot prints the allocator's segments and, if blocks is set, their blocks.
func (r *ScriptRun) snapshot(blocks bool) error {
	s, ok := mem.Find[mem.Snapshotter](r.alloc)
	if !ok {
		return errors.New("snapshot: the allocator does not describe its memory")
	}
	names := map[driver.Pointer]string{}
	for name, b := range r.blocks {
		names[b.Ptr] = name
	}
	for _, seg := range s.Snapshot() {
		kind := "small"
		if seg.Large {
			kind = "large"
		}
		if seg.Expandable {
			kind += " expandable"
		}
		if seg.Pool != (mem.PoolID{}) {
			kind += fmt.Sprintf(" pool=%d,%d", seg.Pool[0], seg.Pool[1])
		}
		r.print("segment ")
		r.printAddress(seg.Ptr, "+%s s%d %s allocated=%s active=%s requested=%s\n", bytesize.Exact(seg.TotalSize),
			seg.Stream,
			kind, bytesize.Exact(seg.AllocatedSize), bytesize.Exact(seg.ActiveSize), bytesize.Exact(seg.RequestedSize))
		if !blocks {
			continue
		}
		for _, b := range seg.Blocks {
			r.print("  ")
			r.printAddress(b.Ptr, "+%s %s", bytesize.Exact(b.Size), b.State)
			if b.State != mem.Inactive {
				r.print(" requested=%s", bytesize.Exact(b.RequestedSize))
				if name := names[b.Ptr]; name != "" {
					r.print(" %s", name)
				}
			}
			r.print("\n")
		}
	}
	return nil
}
