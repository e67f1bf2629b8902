package sim

import (
	"bytes"
	"encoding/binary"
)

// contents are the bytes of one allocation or page, kept as extents. Bytes that no extent covers were never written,
// and read as noise that depends on the owner. So two fresh allocations differ, and code that relies on the contents of
// fresh memory fails its tests. An extent is one byte repeated, noise (copied from memory that was never written), or
// bytes.
type contents struct {
	extents index[extent]
	seed    uint64
	size    int64
}

type extent struct {
	kind  extentKind
	fill  byte   // of a fill
	seed  uint64 // of noise: the byte at offset o of this memory is noise(seed, o+shift)
	shift uint64
	data  []byte // of bytes: as long as the extent
	owned bool   // of bytes: no other extent shares them, so they may be written
}

type extentKind uint8

const (
	isFill extentKind = iota
	isNoise
	isBytes
)

// quantum is the size to which small writes are widened, so that many of them do not make as many extents.
const quantum = 1 << 10

func noise(seed, offset uint64) byte { return byte(mix(seed^offset>>3) >> (8 * (offset & 7))) }

// loadNoise sets dst to the noise from offset on, in words of eight bytes where it can.
func loadNoise(dst []byte, seed, offset uint64) {
	for len(dst) > 0 {
		if offset&7 != 0 || len(dst) < 8 {
			dst[0] = noise(seed, offset)
			dst, offset = dst[1:], offset+1
			continue
		}
		binary.LittleEndian.PutUint64(dst, mix(seed^offset>>3))
		dst, offset = dst[8:], offset+8
	}
}

// tail returns the extent without its first n bytes.
func (e extent) tail(n uint64) extent {
	if e.kind == isBytes {
		e.data = e.data[n:]
	}
	return e
}

// head returns the extent's first n bytes.
func (e extent) head(n uint64) extent {
	if e.kind == isBytes {
		e.data = e.data[:n:n]
	}
	return e
}

// put replaces [off, off+n).
func (c *contents) put(off, n uint64, e extent) {
	c.clear(off, off+n)
	c.extents.insert(off, n, e)
}

// clear makes [off, end) undefined, splitting the extents across its ends.
func (c *contents) clear(off, end uint64) {
	c.extents.divide(off, halve)
	c.extents.divide(end, halve)
	c.extents.removeFrom(off, end)
}

func halve(e extent, n uint64) (head, tail extent) { return e.head(n), e.tail(n) }

// pieces calls f for the extents of [off, end) in order, each cut to the range and gaps as noise.
func (c *contents) pieces(off, end uint64, f func(off, n uint64, e extent)) {
	at := off
	for p := c.extents.from(off); c.extents.valid(p) && at < end; p = c.extents.next(p) {
		e := c.extents.at(p)
		if e.start >= end {
			break
		}
		if at < e.start {
			f(at, e.start-at, extent{kind: isNoise, seed: c.seed})
			at = e.start
		}
		stop := min(end, e.end())
		f(at, stop-at, e.value.tail(at-e.start).head(stop-at))
		at = stop
	}
	if at < end {
		f(at, end-at, extent{kind: isNoise, seed: c.seed})
	}
}

// fill sets [off, off+n) to one byte.
func (c *contents) fill(off, n uint64, pattern byte) {
	if e := c.extents.find(off); e != nil && n < quantum && off+n <= e.end() && e.value.owned {
		repeat(e.value.data[off-e.start:][:n], pattern)
		return
	}
	c.put(off, n, extent{fill: pattern})
}

func repeat(b []byte, pattern byte) {
	if len(b) > 0 {
		b[0] = pattern
		double(b, 1)
	}
}

// double fills b with repetitions of its first n bytes.
func double(b []byte, n int) {
	for ; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// load copies the bytes from off on into dst.
func (c *contents) load(dst []byte, off uint64) {
	c.pieces(off, off+uint64(len(dst)), func(at, n uint64, e extent) {
		out := dst[at-off:][:n]
		switch e.kind {
		case isFill:
			repeat(out, e.fill)
		case isNoise:
			loadNoise(out, e.seed, at+e.shift)
		case isBytes:
			copy(out, e.data)
		}
	})
}

// store sets the bytes from off on to a copy of src, which is not empty.
func (c *contents) store(off uint64, src []byte) {
	n := uint64(len(src))
	if e := c.extents.find(off); e != nil && off+n <= e.end() {
		if e.value.owned {
			copy(e.value.data[off-e.start:], src)
			return
		}
		if e.value.kind == isFill && uniform(src) && src[0] == e.value.fill {
			return
		}
	}
	if n < quantum {
		from := off &^ (quantum - 1)
		to := min((off+n+quantum-1)&^(quantum-1), uint64(c.size))
		wide := make([]byte, to-from)
		c.load(wide, from)
		copy(wide[off-from:], src)
		c.put(from, to-from, extent{kind: isBytes, data: wide, owned: true})
		return
	}
	if uniform(src) {
		c.fill(off, n, src[0])
		return
	}
	c.put(off, n, extent{kind: isBytes, data: bytes.Clone(src), owned: true})
}

// uniform reports whether all bytes are equal.
func uniform(b []byte) bool { return len(b) < 2 || bytes.Equal(b[1:], b[:len(b)-1]) }

// copyFrom sets [to, to+n) to the bytes of other at from, sharing what it can. The ranges do not overlap.
func (c *contents) copyFrom(to uint64, other *contents, from, n uint64) {
	type part struct {
		off, n uint64
		e      extent
	}
	var parts []part
	other.pieces(from, from+n, func(at, n uint64, e extent) {
		// The byte at offset at moves to at+to-from: what was noise(seed, at+shift) stays so.
		e.shift += from - to
		e.owned = false
		parts = append(parts, part{at - from + to, n, e})
	})
	for p := other.extents.from(from); other.extents.valid(p); p = other.extents.next(p) {
		e := other.extents.at(p)
		if e.start >= from+n {
			break
		}
		e.value.owned = false
	}
	for _, p := range parts {
		if p.e.kind == isBytes && p.n < quantum {
			c.store(p.off, p.e.data)
			continue
		}
		c.put(p.off, p.n, p.e)
	}
}
