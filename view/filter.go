package view

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/trace"
)

// filter returns a function that reports whether a block passes the filters of a request, or nil for all blocks.
func (r *Recording) filter(q url.Values) (match func(i uint32) bool, err error) {
	var all []func(i uint32) bool
	if name := q.Get("category"); name != "" {
		r.settle()
		all = append(all, func(i uint32) bool { return r.h.Category(int(i)).String() == name })
	}
	if name := q.Get("stream"); name != "" {
		n := slices.IndexFunc(r.h.Streams, func(handle uint64) bool { return streamText(handle) == name })
		all = append(all, func(i uint32) bool { return int(r.lives.At(int(i)).Stream) == n })
	}
	if text := q.Get("line"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || int(n) >= len(r.lines) {
			return nil, fmt.Errorf("line %q: want 0 to %d", text, len(r.lines)-1)
		}
		all = append(all, func(i uint32) bool {
			b := r.h.Block(int(i))
			return r.line(&b) == uint32(n)
		})
	}
	if text := q.Get("min_size"); text != "" {
		n, err := bytesize.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("min_size: %w", err)
		}
		all = append(all, func(i uint32) bool { return r.lives.Size(int(i)) >= n })
	}
	if text := q.Get("q"); text != "" {
		all = append(all, r.search(text))
	}
	if len(all) == 0 {
		return nil, nil
	}
	return func(i uint32) bool {
		for _, match := range all {
			if !match(i) {
				return false
			}
		}
		return true
	}, nil
}

// search returns a function that finds the blocks with a text: a size, also with > or < before it, an address, or a
// part of a frame, of a tag or of a category, in upper or lower case. Categories that are not known yet are not found.
func (r *Recording) search(text string) (match func(i uint32) bool) {
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, ">"); ok {
		if n, err := bytesize.Parse(strings.TrimSpace(rest)); err == nil {
			return func(i uint32) bool { return r.lives.Size(int(i)) > n }
		}
	}
	if rest, ok := strings.CutPrefix(text, "<"); ok {
		if n, err := bytesize.Parse(strings.TrimSpace(rest)); err == nil {
			return func(i uint32) bool { return r.lives.Size(int(i)) < n }
		}
	}
	if digits, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
		if n, err := strconv.ParseUint(digits, 16, 64); err == nil {
			p := driver.Pointer(n)
			return func(i uint32) bool {
				ptr := r.lives.Ptr(int(i))
				return ptr == p || ptr < p && p < ptr+driver.Pointer(r.lives.Size(int(i)))
			}
		}
	}
	var size int64 = -1
	if n, err := bytesize.Parse(text); err == nil {
		size = n
	}
	return r.searchText(strings.ToLower(text), size)
}

// searchText finds blocks with a size, or with a text that is in lower case.
func (r *Recording) searchText(text string, size int64) func(i uint32) bool {
	stacks := make([]bool, len(r.lineOf))
	if r.snapshot.Stacks != nil {
		frames := make([]bool, len(r.snapshot.Stacks.Frames))
		for i, f := range r.snapshot.Stacks.Frames {
			where := strings.ToLower(fmt.Sprintf("%s:%d %s", f.Filename, f.Line, f.Name))
			frames[i] = strings.Contains(where, text) || strings.Contains(strings.ToLower(r.h.Frames.Label(f)), text)
		}
		for id := range stacks {
			stacks[id] = slices.ContainsFunc(r.snapshot.Stacks.At(trace.StackID(id)), func(n uint32) bool { return frames[n] })
		}
	}
	tags := make([]bool, len(r.h.Trace.Metadata))
	for i, tag := range r.h.Trace.Metadata {
		tags[i] = tag != "" && strings.Contains(strings.ToLower(tag), text)
	}
	return func(i uint32) bool {
		b := r.h.Block(int(i))
		return b.Size == size || int(b.Stack) < len(stacks) && stacks[b.Stack] || int(b.Tag) < len(tags) && tags[b.Tag] ||
			strings.Contains(b.Category.String(), text)
	}
}
