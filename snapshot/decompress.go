package snapshot

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/ashlar-go/ashlar/internal/countio"
	"github.com/klauspost/compress/zstd"
)

// The magic numbers are the first bytes of each format.
var (
	magicGzip = []byte{0x1f, 0x8b}
	magicZstd = []byte{0x28, 0xb5, 0x2f, 0xfd}
	magicXz   = []byte{0xfd, '7', 'z', 'X', 'Z', 0}
	magicZip  = []byte("PK\x03\x04")
)

// pickleProto is PROTO, the opcode that pickles of protocol 2 to 5 begin with.
const pickleProto = 0x80

// decompress determines the format of r from its first bytes, before it reads the rest. It returns a reader of the
// pickle in r, the prefix of errors for the format ("zstd: " or nothing), and the counter of the bytes read from r
// itself.
func decompress(r io.Reader, limits Limits) (plain io.ReadCloser, format string, source *countio.Reader, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(8)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", nil, fmt.Errorf("snapshot: %w", err)
	}
	if len(head) == 0 {
		return nil, "", nil, &Error{Reason: "the file is empty"}
	}
	source = &countio.Reader{R: in}
	switch {
	case bytes.HasPrefix(head, magicGzip):
		format = "gzip: "
		z, zerr := gzip.NewReader(source)
		plain, err = z, zerr
	case bytes.HasPrefix(head, magicZstd):
		format = "zstd: "
		z, zerr := zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(uint64(limits.Window)))
		if err = zerr; err == nil {
			plain = z.IOReadCloser()
		}
	case bytes.HasPrefix(head, magicXz):
		format = "xz: "
		plain, err = io.NopCloser(newXzReader(source, limits.Window)), nil
	case bytes.HasPrefix(head, magicZip):
		return nil, "", nil, &Error{Reason: "a zip archive, as torch.save writes: a memory snapshot comes from " +
			"torch.cuda.memory._dump_snapshot"}
	case head[0] == '{' || head[0] == '[':
		return nil, "", nil, &Error{Reason: "looks like JSON: want the pickle that " +
			"torch.cuda.memory._dump_snapshot writes"}
	case head[0] == pickleProto:
		return io.NopCloser(source), "", source, nil
	default:
		return nil, "", nil, &Error{Reason: fmt.Sprintf("the file begins with %q: want a pickle of protocol 2 to 5, "+
			"plain or compressed with gzip, zstd or xz", head)}
	}
	if err != nil {
		return nil, "", nil, fmt.Errorf("snapshot: %s%w", format, err)
	}
	return &ratioReader{plain: plain, source: source, limits: limits}, format, source, nil
}

// ErrRatio is matched by the error for a compressed file that decompresses to far more than a trace does.
var ErrRatio = errors.New("decompresses to far more than a snapshot would: over Limits.Ratio")

// ErrMemory is matched by the error for a file that needs far more memory than a trace of its size.
var ErrMemory = errors.New("far more than a snapshot of this size would: over Limits.MemoryPerByte")

// memory returns how many bytes of memory may be used to read n bytes of a file, compressed or not.
func (l Limits) memory(n int64) int64 {
	if n > (math.MaxInt64-l.MemoryFree)/l.MemoryPerByte {
		return math.MaxInt64
	}
	return l.MemoryFree + n*l.MemoryPerByte
}

// A ratioReader fails when plain has returned too many bytes for those that it read from source.
type ratioReader struct {
	plain  io.ReadCloser
	source *countio.Reader
	limits Limits
	n      int64
}

func (r *ratioReader) Read(p []byte) (int, error) {
	n, err := r.plain.Read(p)
	r.n += int64(n)
	if (r.n-r.limits.Free)/r.limits.Ratio > r.source.N {
		return 0, ErrRatio
	}
	return n, err
}

func (r *ratioReader) Close() error { return r.plain.Close() }
