package memtest

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// A samples has memory outside of the allocator for samples of blocks. Samples are copied in stream order, and compared
// when the streams are done. Reading a block directly would wait for its stream, and so hide errors that occur without
// waits.
type samples struct {
	base    driver.Pointer
	samples []sample // sample i is at base + i*sampleSize
	read    []byte
}

const (
	sampleSize = 64
	maxSamples = 2048
	samplesLen = sampleSize * maxSamples
)

// A sample is a copied piece of a block with its expected contents.
type sample struct {
	block *block
	ptr   driver.Pointer
	n     int
	want  byte
	why   string
}

// full reports whether there may be no space for another block's samples.
func (e *samples) full() bool { return len(e.samples) > maxSamples-8 }

// sample queues copies of pieces of b on s: all of a small block, the beginning, the middle and the end of a larger
// one.
func (e *samples) sample(s driver.Stream, b *block, why string) error {
	var offsets []int64
	if b.Size <= 4*sampleSize {
		for at := int64(0); at < b.Size; at += sampleSize {
			offsets = append(offsets, at)
		}
	} else {
		offsets = []int64{0, middle(b), b.Size - sampleSize}
	}
	for _, at := range offsets {
		n := min(sampleSize, b.Size-at)
		to := e.base + driver.Pointer(len(e.samples)*sampleSize)
		from := b.Ptr + driver.Pointer(at)
		if err := s.Copy(to, from, n); err != nil {
			return fmt.Errorf("copy a sample of %v on s%d: %w", b, s.ID(), err)
		}
		e.samples = append(e.samples, sample{b, from, int(n), b.pattern, why})
	}
	return nil
}

// A part is a range of bytes of a block.
type part struct{ at, size int64 }

// middle returns where the middle of a large block is sampled. It depends on the pattern, so that many blocks are
// sampled at many places.
func middle(b *block) int64 { return sampleSize + (b.Size-3*sampleSize)*int64(b.pattern)/256 }

// compare compares the samples with the expected contents and removes them. All streams must be done.
func (e *samples) compare(s driver.Stream) error {
	n := len(e.samples) * sampleSize
	if n == 0 {
		return nil
	}
	if e.read == nil {
		e.read = make([]byte, samplesLen)
	}
	// Read only written bytes.
	for i := 0; i < len(e.samples); {
		end := i
		for end < len(e.samples) && (end == i || e.samples[end-1].n == sampleSize) {
			end++
		}
		size := (end-i-1)*sampleSize + e.samples[end-1].n
		if err := s.CopyOut(e.read[i*sampleSize:][:size], e.base+driver.Pointer(i*sampleSize)); err != nil {
			return fmt.Errorf("read samples: %w", err)
		}
		i = end
	}
	defer func() { e.samples = e.samples[:0] }()
	for i, sm := range e.samples {
		for j, got := range e.read[i*sampleSize:][:sm.n] {
			if got != sm.want {
				return fmt.Errorf("contents of %v changed: byte %d (at %#x) was %#02x when looked at %s, want %#02x",
					sm.block, int64(sm.ptr-sm.block.Ptr)+int64(j), uint64(sm.ptr)+uint64(j), got, sm.why, sm.want)
			}
		}
	}
	return nil
}

func syncAll(streams []driver.Stream) error {
	for _, s := range streams {
		if err := s.Sync(context.Background()); err != nil {
			return fmt.Errorf("sync s%d: %w", s.ID(), err)
		}
	}
	return nil
}
