package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ashlar-go/ashlar/internal/countio"
	"github.com/ulikunitz/xz/lzma"
)

// An xzReader reads the xz container: streams of blocks of LZMA2. It parses the container itself and uses package lzma
// for the blocks only, because each block declares the size of its dictionary, up to 4 GiB, which must be checked
// before it is allocated. The index is skipped: the checksums of the blocks cover the contents.
//
// The format is described at https://tukaani.org/xz/xz-file-format.txt, version 1.2.1.
type xzReader struct {
	in      *countio.Reader
	window  int64
	err     error // sticky
	started bool  // a stream has begun

	newCheck func() hash.Hash
	block    io.Reader // nil between blocks
	check    hash.Hash // nil if the stream has none
	begin    int64     // in.N at the start of the block's compressed data
	declared int64     // bytes of all dictionaries so far
}

var errXz = errors.New("not a valid xz file")

// Limits on the total size of all dictionaries of a file: eight windows, plus a thousand bytes for each compressed
// byte. Each dictionary must be cleared, so a file of many tiny blocks with large dictionaries would take very long.
const (
	dictionaryWindows = 8
	dictionaryRatio   = 1000
)

func newXzReader(in *countio.Reader, window int64) *xzReader {
	return &xzReader{in: in, window: window}
}

func (x *xzReader) Read(p []byte) (int, error) {
	for x.err == nil && len(p) > 0 {
		if x.block == nil {
			x.err = x.next()
			continue
		}
		n, err := x.block.Read(p)
		if x.check != nil {
			x.check.Write(p[:n])
		}
		switch {
		case err == io.EOF:
			x.block = nil
			x.err = x.endBlock()
		case err != nil:
			x.err = err
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, x.err
}

// next starts the next block. It returns io.EOF after the last stream.
func (x *xzReader) next() error {
	if !x.started {
		return x.stream()
	}
	size, err := x.byte()
	if err != nil {
		return err
	}
	if size == 0 {
		return x.endStream()
	}
	return x.startBlock(size)
}

// stream reads the header of a stream.
func (x *xzReader) stream() error {
	var h [12]byte
	for { // zeros may follow a stream, in multiples of four bytes
		if n, err := io.ReadFull(x.in, h[:4]); n == 0 && err == io.EOF && x.in.N > 0 {
			return io.EOF
		} else if err != nil {
			return noEOF(err)
		}
		if !bytes.Equal(h[:4], []byte{0, 0, 0, 0}) {
			break
		}
	}
	if _, err := io.ReadFull(x.in, h[4:]); err != nil {
		return noEOF(err)
	}
	if !bytes.Equal(h[:6], magicXz) || h[6] != 0 || h[7] > 15 ||
		crc32.ChecksumIEEE(h[6:8]) != binary.LittleEndian.Uint32(h[8:]) {
		return fmt.Errorf("%w: bad stream header", errXz)
	}
	switch h[7] {
	case 0:
		x.newCheck = nil
	case 1:
		x.newCheck = func() hash.Hash { return crc32.NewIEEE() }
	case 4:
		x.newCheck = func() hash.Hash { return crc64.New(crc64.MakeTable(crc64.ECMA)) }
	case 10:
		x.newCheck = sha256.New
	default:
		return fmt.Errorf("%w: unknown check %d", errXz, h[7])
	}
	x.started = true
	return nil
}

// startBlock reads the header of a block, whose first byte is size.
func (x *xzReader) startBlock(size byte) error {
	h := make([]byte, (int(size)+1)*4)
	h[0] = size
	if _, err := io.ReadFull(x.in, h[1:]); err != nil {
		return noEOF(err)
	}
	body, sum := h[:len(h)-4], h[len(h)-4:]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(sum) {
		return fmt.Errorf("%w: bad block header", errXz)
	}
	flags, rest := body[1], body[2:]
	for _, present := range []bool{flags&0x40 != 0, flags&0x80 != 0} { // the optional sizes
		if present {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return fmt.Errorf("%w: bad block header", errXz)
			}
			rest = rest[n:]
		}
	}
	if flags&0x3f != 0 || len(rest) < 3 || rest[0] != 0x21 || rest[1] != 1 {
		return fmt.Errorf("%w: a filter other than LZMA2 alone", errXz)
	}
	capacity, err := lzma.DecodeDictCap(rest[2])
	if err != nil {
		return fmt.Errorf("%w: bad dictionary size", errXz)
	}
	if capacity > x.window {
		return fmt.Errorf("the dictionary has %d bytes: over Limits.Window, %d", capacity, x.window)
	}
	if x.declared += capacity; x.declared-dictionaryWindows*x.window > x.in.N*dictionaryRatio {
		return fmt.Errorf("the dictionaries of many small blocks have %d bytes together: %w", x.declared, ErrRatio)
	}
	x.begin = x.in.N
	if x.newCheck != nil {
		x.check = x.newCheck()
	}
	x.block, err = lzma.Reader2Config{DictCap: int(max(capacity, lzma.MinDictCap))}.NewReader2(x.in)
	return noEOF(err)
}

// endBlock reads the padding and the check after a block.
func (x *xzReader) endBlock() error {
	padding := make([]byte, (4-(x.in.N-x.begin)%4)%4)
	if _, err := io.ReadFull(x.in, padding); err != nil {
		return noEOF(err)
	}
	if x.check == nil {
		return nil
	}
	want := make([]byte, x.check.Size())
	if _, err := io.ReadFull(x.in, want); err != nil {
		return noEOF(err)
	}
	got := x.check.Sum(nil)
	if x.check.Size() < sha256.Size { // cyclic redundancy checks are stored little-endian
		for i, j := 0, len(got)-1; i < j; i, j = i+1, j-1 {
			got[i], got[j] = got[j], got[i]
		}
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: the checksum of a block is wrong", errXz)
	}
	return nil
}

// endStream skips the index, whose first byte is read, and the footer.
func (x *xzReader) endStream() error {
	begin := x.in.N - 1
	records, err := x.uvarint()
	if err != nil {
		return err
	}
	for range records { // two numbers each; a false count ends with the input
		for range 2 {
			if _, err := x.uvarint(); err != nil {
				return err
			}
		}
	}
	tail := make([]byte, (4-(x.in.N-begin)%4)%4+4+12)
	if _, err := io.ReadFull(x.in, tail); err != nil {
		return noEOF(err)
	}
	if !bytes.HasSuffix(tail, []byte("YZ")) {
		return fmt.Errorf("%w: bad footer", errXz)
	}
	x.started = false
	return nil
}

func (x *xzReader) byte() (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(x.in, b[:])
	return b[0], noEOF(err)
}

func (x *xzReader) uvarint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 63; shift += 7 {
		b, err := x.byte()
		if err != nil {
			return 0, err
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: bad index", errXz)
}

// noEOF converts io.EOF in the middle of a structure to io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
