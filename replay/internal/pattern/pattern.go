// Package pattern writes numbered patterns into blocks of device memory and checks them.
package pattern

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"

	"github.com/ashlar-go/ashlar/driver"
)

// A Painter writes patterns into blocks and compares blocks with them. Each number has a pattern of its own.
type Painter interface {
	// Paint queues the writing of pattern number n.
	Paint(s driver.Stream, b driver.Range, n uint64) error
	// Compare waits for s and returns the first byte that differs from pattern number n, or nil.
	Compare(s driver.Stream, b driver.Range, n uint64) (*Difference, error)
	// Close releases the painter's kernels and memory.
	Close() error
}

// A Difference is a byte that does not have the value that was written.
type Difference struct {
	Offset    int64 // bytes from the start of the block
	Want, Got byte
}

// New returns a painter for dev. It uses kernels if dev runs compiled code, and otherwise copies from the host. If
// sampled is set, copies write and check only samples of large blocks. The kernels need 8 bytes of memory, allocated
// from scratch, which is dev or the device that dev wraps.
func New(dev, scratch driver.Device, sampled bool) (Painter, error) {
	if dev.Kernels() != nil {
		p, err := newKernelPainter(dev, scratch)
		if err == nil || !errors.Is(err, driver.ErrUnsupported) {
			return p, err
		}
	}
	return &copyPainter{sampled: sampled, want: make([]byte, pieceSize+8), got: make([]byte, pieceSize+8)}, nil
}

// firstWord returns the first word of pattern number n. The first words of different numbers are far apart.
func firstWord(n uint64) uint64 {
	n *= 0x9e3779b97f4a7c15 // odd, so that numbers stay apart
	return n ^ n>>32
}

// A copyPainter copies patterns from the host and back. All words of a pattern are the same.
type copyPainter struct {
	sampled bool   // writes and checks only parts of large blocks
	want    []byte // a piece of pattern
	got     []byte
}

const (
	pieceSize  = 256 << 10 // bytes copied at a time: they stay in a core's cache
	sampleSize = 64 << 10
	sampleStep = 4 << 20 // bytes from sample to sample
)

func (c *copyPainter) Close() error { return nil }

func (c *copyPainter) Paint(s driver.Stream, b driver.Range, n uint64) error {
	c.pattern(n, b.Size)
	for off, length := range c.pieces(b.Size) {
		if err := s.CopyIn(b.Ptr+driver.Pointer(off), c.want[:length]); err != nil {
			return err
		}
	}
	return nil
}

func (c *copyPainter) Compare(s driver.Stream, b driver.Range, n uint64) (*Difference, error) {
	c.pattern(n, b.Size)
	for off, length := range c.pieces(b.Size) {
		if err := s.CopyOut(c.got[:length], b.Ptr+driver.Pointer(off)); err != nil {
			return nil, err
		}
		if bytes.Equal(c.got[:length], c.want[:length]) {
			continue
		}
		for i := range length {
			if c.got[i] != c.want[i] {
				return &Difference{off + int64(i), c.want[i], c.got[i]}, nil
			}
		}
	}
	return nil, nil
}

// pattern fills as much of want as a block of size bytes needs.
func (c *copyPainter) pattern(n uint64, size int64) {
	want := c.want[:min(int64(len(c.want)), size+7)]
	for off := 0; off+8 <= len(want) && off < 64; off += 8 {
		binary.LittleEndian.PutUint64(want[off:], firstWord(n))
	}
	for done := 64; done < len(want); done *= 2 {
		copy(want[done:], want[:done])
	}
}

// pieces visits the parts of a block of size bytes that are written and checked: offset and length. Each starts at a
// whole word of the pattern, so that they agree where they overlap.
func (c *copyPainter) pieces(size int64) func(yield func(int64, int) bool) {
	step, length := int64(pieceSize), int64(pieceSize)
	if c.sampled && size > sampleStep {
		step, length = sampleStep, sampleSize
	}
	return func(yield func(int64, int) bool) {
		for off := int64(0); off < size; off += step {
			if !yield(off, int(min(length, size-off))) {
				return
			}
		}
		if step > length {
			off := (size - length) &^ 7
			yield(off, int(size-off))
		}
	}
}

// A kernelPainter writes and compares whole blocks with kernels, at the speed of the device's memory. The words of a
// pattern count up, so that a block that is shifted within itself is detected, too. The bytes after the last whole word
// are not written.
type kernelPainter struct {
	dev                 driver.Device // the memory below is not the allocator's
	kernels             driver.Kernels
	module              driver.Module
	painting, comparing driver.Function
	first               driver.Pointer // on the device: index of the first word that differs
	multiprocessors     int
}

//go:embed contents.ptx
var contentsPTX []byte

func newKernelPainter(dev, scratch driver.Device) (Painter, error) {
	module, err := dev.Kernels().Load(contentsPTX)
	if err != nil {
		return nil, err
	}
	k := &kernelPainter{
		kernels: dev.Kernels(), dev: scratch, module: module,
		multiprocessors: max(1, dev.Info().Multiprocessors),
	}
	if k.painting, err = module.Function("paint"); err == nil {
		if k.comparing, err = module.Function("compare"); err == nil {
			k.first, err = k.dev.Alloc(8)
		}
	}
	if err != nil {
		return nil, errors.Join(err, module.Close())
	}
	return k, nil
}

func (k *kernelPainter) Close() error { return errors.Join(k.dev.Free(k.first), k.module.Close()) }

// launch runs a function over the words of a block.
func (k *kernelPainter) launch(s driver.Stream, f driver.Function, b driver.Range, n uint64, more ...driver.Arg) error {
	const threads, most = 256, 16 // of a block; blocks for each multiprocessor
	words := b.Size / 8
	if words == 0 {
		return nil
	}
	blocks := min((words+threads-1)/threads, int64(most*k.multiprocessors))
	args := append([]driver.Arg{driver.PointerArg(b.Ptr), driver.Int64Arg(words), driver.Uint64Arg(firstWord(n))},
		more...)
	return k.kernels.Launch(s, driver.Kernel{
		Name: f.Name(), Code: f, Grid: [3]uint32{uint32(blocks)}, Block: [3]uint32{threads}, Args: args,
	})
}

func (k *kernelPainter) Paint(s driver.Stream, b driver.Range, n uint64) error {
	return k.launch(s, k.painting, b, n)
}

func (k *kernelPainter) Compare(s driver.Stream, b driver.Range, n uint64) (*Difference, error) {
	if err := s.Fill(k.first, 0xff, 8); err != nil {
		return nil, err
	}
	if err := k.launch(s, k.comparing, b, n, driver.PointerArg(k.first)); err != nil {
		return nil, err
	}
	var first, got, want [8]byte
	if err := s.CopyOut(first[:], k.first); err != nil {
		return nil, err
	}
	i := binary.LittleEndian.Uint64(first[:])
	if i == ^uint64(0) {
		return nil, nil
	}
	if err := s.CopyOut(got[:], b.Ptr+driver.Pointer(8*i)); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint64(want[:], firstWord(n)+i)
	c := &Difference{Offset: int64(8 * i)}
	for j := range got {
		if got[j] != want[j] {
			c.Offset, c.Want, c.Got = c.Offset+int64(j), want[j], got[j]
			return c, nil
		}
	}
	c.Want, c.Got = want[0], got[0] // another kernel restored the value since
	return c, nil
}
