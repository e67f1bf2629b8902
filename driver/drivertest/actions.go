package drivertest

import (
	"bytes"
	"context"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// The things that a random history does, on the device and on the model alike.

// wipe gives a fresh cell contents.
func (h *history) wipe(pl place) {
	h.t.Helper()
	s, pattern := h.stream(), byte(h.rng.Uint32())
	h.use(pl.cell, s)
	h.note("s%d fill %#x+%d %#02x (fresh)", s.ID(), pl.ptr, len(pl.cell.bytes), pattern)
	testkit.Must(h.t, s.Fill(pl.ptr, pattern, int64(len(pl.cell.bytes))))
	pl.cell.bytes = append(pl.cell.bytes[:0], bytes.Repeat([]byte{pattern}, len(pl.cell.bytes))...)
}

func (h *history) alloc() {
	if len(h.places) >= maxPlaces {
		return
	}
	size := 1 + h.rng.IntN(8000)
	p, err := h.d.Alloc(int64(size))
	h.note("alloc %d = %#x", size, p)
	testkit.Must(h.t, err)
	pl := place{ptr: p, cell: &cell{bytes: make([]byte, size)}}
	h.places = append(h.places, pl)
	h.wipe(pl)
}

// free gives a block back, with work on it queued, or unmaps a page.
func (h *history) free() {
	if len(h.places) == 0 {
		return
	}
	i := h.rng.IntN(len(h.places))
	pl := h.places[i]
	h.places = slices.Delete(h.places, i, i+1)
	h.discard(pl)
}

func (h *history) discard(pl place) {
	if pl.page == nil {
		h.note("free %#x", pl.ptr)
		testkit.Must(h.t, h.d.Free(pl.ptr))
		return
	}
	h.note("sync, unmap and release %#x", pl.ptr)
	if pl.cell.last != nil {
		syncAll(h.t, pl.cell.last)
		pl.cell.last = nil
	}
	testkit.Must(h.t, h.d.VirtualMemory().Unmap(pl.ptr, pl.page.Size))
	testkit.Must(h.t, h.d.VirtualMemory().Release(pl.ptr, pl.page.Size))
}

func (h *history) openOrCloseStream() {
	if len(h.streams) < maxStreams && h.rng.IntN(2) == 0 {
		s := NewStream(h.t, h.d)
		h.note("s%d opened", s.ID())
		h.streams = append(h.streams, s)
		return
	}
	if len(h.streams) == 1 {
		return
	}
	i := 1 + h.rng.IntN(len(h.streams)-1)
	s := h.streams[i]
	h.note("s%d closed", s.ID())
	testkit.Must(h.t, s.Close())
	h.streams = slices.Delete(h.streams, i, i+1)
	forget := func(c *cell) {
		if c.last == s {
			c.last = nil
		}
	}
	if h.staged.last == s {
		h.staged.last = nil
	}
	for _, pl := range h.places {
		forget(pl.cell)
	}
	for _, c := range h.cells {
		forget(c)
	}
}

func (h *history) createPage() {
	vm := h.d.VirtualMemory()
	if vm == nil || len(h.pages) >= maxPages {
		return
	}
	page, err := vm.Create(h.d.Info().Granularity)
	testkit.Must(h.t, err)
	h.note("page %d created", page.ID)
	if h.cells == nil {
		h.cells = map[uint64]*cell{}
	}
	h.pages = append(h.pages, page)
	h.cells[page.ID] = &cell{}
}

func (h *history) mapPage() {
	if len(h.pages) == 0 || len(h.places) >= maxPlaces {
		return
	}
	page := h.pages[h.rng.IntN(len(h.pages))]
	vm := h.d.VirtualMemory()
	p, err := vm.Reserve(page.Size)
	testkit.Must(h.t, err)
	testkit.Must(h.t, vm.Map(p, page))
	h.note("page %d mapped at %#x", page.ID, p)
	pl := place{ptr: p, cell: h.cells[page.ID], page: &page}
	h.places = append(h.places, pl)
	if pl.cell.bytes == nil {
		pl.cell.bytes = make([]byte, min(cellBytes, page.Size))
		h.wipe(pl)
	}
}

// dropPage drops a page, mapped or not.
func (h *history) dropPage() {
	if len(h.pages) == 0 || h.rng.IntN(2) == 0 {
		return
	}
	i := h.rng.IntN(len(h.pages))
	h.note("page %d dropped", h.pages[i].ID)
	testkit.Must(h.t, h.d.VirtualMemory().Drop(h.pages[i]))
	delete(h.cells, h.pages[i].ID)
	h.pages = slices.Delete(h.pages, i, i+1)
}

func (h *history) sync() {
	s := h.stream()
	h.note("s%d sync", s.ID())
	m := mustMark(h.t, s)
	testkit.Must(h.t, s.Sync(context.Background()))
	if ok, err := s.Reached(m); !ok || err != nil {
		h.t.Fatalf("after Sync: reached %v, %v", ok, err)
	}
}

func (h *history) copyIn() {
	if pl, at, n, ok := h.pick(); ok {
		s, src := h.stream(), Noise(h.rng.Uint64(), n)
		h.use(pl.cell, s)
		h.note("s%d copyin %#x+%d", s.ID(), pl.ptr+driver.Pointer(at), n)
		testkit.Must(h.t, s.CopyIn(pl.ptr+driver.Pointer(at), src))
		copy(pl.cell.bytes[at:], src)
		clear(src)
	}
}

func (h *history) copy() {
	from, at, n, ok := h.pick()
	if !ok {
		return
	}
	to, dst, room, _ := h.pick()
	n = min(n, room)
	if from.cell == to.cell && at < dst+n && dst < at+n {
		return // the ranges would overlap
	}
	s := h.stream()
	h.use(from.cell, s)
	h.use(to.cell, s)
	h.note("s%d copy %#x -> %#x, %d", s.ID(), from.ptr+driver.Pointer(at), to.ptr+driver.Pointer(dst), n)
	testkit.Must(h.t, s.Copy(to.ptr+driver.Pointer(dst), from.ptr+driver.Pointer(at), int64(n)))
	copy(to.cell.bytes[dst:dst+n], from.cell.bytes[at:])
}

func (h *history) fill() {
	if pl, at, n, ok := h.pick(); ok {
		s, pattern := h.stream(), byte(h.rng.Uint32())
		h.use(pl.cell, s)
		h.note("s%d fill %#x+%d %#02x", s.ID(), pl.ptr+driver.Pointer(at), n, pattern)
		testkit.Must(h.t, s.Fill(pl.ptr+driver.Pointer(at), pattern, int64(n)))
		copy(pl.cell.bytes[at:], bytes.Repeat([]byte{pattern}, n))
	}
}

func (h *history) launch() {
	if h.kernels == nil {
		return
	}
	if pl, at, n, ok := h.pick(); ok {
		s, delta, p := h.stream(), byte(h.rng.Uint32()), pl.ptr+driver.Pointer(at)
		h.use(pl.cell, s)
		h.note("s%d adds %d to each of %#x+%d", s.ID(), delta, p, n)
		testkit.Must(h.t, h.kernels.Launch(s, changeKernel(p, p, n, delta)))
		for i := range pl.cell.bytes[at : at+n] {
			pl.cell.bytes[at+i] += delta
		}
	}
}

func (h *history) read() {
	if pl, at, n, ok := h.pick(); ok {
		s := h.stream()
		h.use(pl.cell, s)
		h.note("s%d reads %#x+%d", s.ID(), pl.ptr+driver.Pointer(at), n)
		wantBytes(h.t, s, pl.ptr+driver.Pointer(at), pl.cell.bytes[at:at+n])
	}
}

// stage returns page-locked memory of n bytes that no queued work uses, for work on s.
func (h *history) stage(s driver.Stream, n int) []byte {
	h.t.Helper()
	if h.staged.bytes == nil {
		b, err := h.pinned.AllocHost(stagedBytes)
		testkit.Must(h.t, err)
		h.staged.bytes = b
	}
	if h.staged.last != nil {
		syncAll(h.t, h.staged.last)
	}
	h.staged.last = s
	return h.staged.bytes[:n]
}

// copyInPinned leaves the copy to the device and goes on.
func (h *history) copyInPinned() {
	if h.pinned == nil {
		return
	}
	if pl, at, n, ok := h.pick(); ok {
		s := h.stream()
		h.use(pl.cell, s)
		src := h.stage(s, n)
		copy(src, Noise(h.rng.Uint64(), n))
		h.note("s%d copies page-locked memory to %#x+%d", s.ID(), pl.ptr+driver.Pointer(at), n)
		testkit.Must(h.t, h.pinned.CopyInAsync(s, pl.ptr+driver.Pointer(at), src))
		copy(pl.cell.bytes[at:], src)
	}
}

func (h *history) copyOutPinned() {
	if h.pinned == nil {
		return
	}
	if pl, at, n, ok := h.pick(); ok {
		s := h.stream()
		h.use(pl.cell, s)
		dst := h.stage(s, n)
		h.note("s%d copies %#x+%d to page-locked memory", s.ID(), pl.ptr+driver.Pointer(at), n)
		testkit.Must(h.t, h.pinned.CopyOutAsync(s, dst, pl.ptr+driver.Pointer(at)))
		syncAll(h.t, s)
		if !bytes.Equal(dst, pl.cell.bytes[at:at+n]) {
			h.t.Fatalf("%d bytes at %#x: other bytes came back in page-locked memory", n, pl.ptr+driver.Pointer(at))
		}
	}
}

// launchGraph captures a fill and a copy of half of it, and launches them once or twice.
func (h *history) launchGraph() {
	if h.graphs == nil {
		return
	}
	pl, at, n, ok := h.pick()
	s := h.stream()
	if !ok || s.ID() == 0 {
		return
	}
	pattern, half, p := byte(h.rng.Uint32()), n/2, pl.ptr+driver.Pointer(at)
	h.use(pl.cell, s)
	h.note("s%d captures and launches: fill %#x+%d %#02x, copy %d to its end", s.ID(), p, n-half, pattern, half)
	testkit.Must(h.t, h.graphs.Begin(s))
	testkit.Must(h.t, s.Fill(p, pattern, int64(n-half)))
	testkit.Must(h.t, s.Copy(p+driver.Pointer(n-half), p, int64(half)))
	g, err := h.graphs.End(s)
	testkit.Must(h.t, err)
	for range 1 + h.rng.IntN(2) {
		testkit.Must(h.t, g.Launch(s))
	}
	testkit.Must(h.t, g.Close())
	copy(pl.cell.bytes[at:], bytes.Repeat([]byte{pattern}, n))
}
