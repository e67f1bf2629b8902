package snapshot_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// compress returns b in each format.
func compress(t testing.TB, b []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"plain": b}
	for name, open := range map[string]func(w io.Writer) (io.WriteCloser, error){
		"gzip": func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"zstd": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
		"xz":   func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
		"xz sha256": func(w io.Writer) (io.WriteCloser, error) {
			return xz.WriterConfig{CheckSum: xz.SHA256, BlockSize: 1 << 16}.NewWriter(w)
		},
		"xz crc32":   func(w io.Writer) (io.WriteCloser, error) { return xz.WriterConfig{CheckSum: xz.CRC32}.NewWriter(w) },
		"xz nothing": func(w io.Writer) (io.WriteCloser, error) { return xz.WriterConfig{NoCheckSum: true}.NewWriter(w) },
	} {
		var out bytes.Buffer
		w, err := open(&out)
		if err == nil {
			_, err = w.Write(b)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = out.Bytes()
	}
	return all
}

func generated(t testing.TB, c snapshottest.Config) ([]byte, snapshottest.Summary) {
	t.Helper()
	var b bytes.Buffer
	sum, err := snapshottest.Write(&b, c)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), sum
}

func TestCompressedFiles(t *testing.T) {
	plain, sum := generated(t, snapshottest.Config{Seed: 3, Events: 1000, Stacks: 20, Live: 200})
	for name, b := range compress(t, plain) {
		s, err := snapshot.ReadBytes(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		testkit.Equal(t, name+": events", len(s.Traces[0].Events), sum.Events)
		if name == "plain" {
			continue
		}
		for _, n := range []int{len(b) / 2, len(b) - 1} {
			if _, err := snapshot.ReadBytes(b[:n]); err == nil || n == len(b)/2 && !contains(err, "unexpected EOF") &&
				!contains(err, "the input ends") {
				t.Errorf("%s: %d of %d bytes: %v", name, n, len(b), err)
			}
		}
		if name == "xz nothing" {
			continue
		}
		flipped := bytes.Clone(b)
		flipped[len(b)/2] ^= 0x10
		if _, err := snapshot.ReadBytes(flipped); err == nil {
			t.Errorf("%s: one bit flipped: no error", name)
		}
	}
}

// A small file that was cut short is refused. One that was changed is refused or, behind its headers, reads as before:
// sizes that are not needed are not checked.
func TestXzFilesThatAreWrong(t *testing.T) {
	type d = snapshottest.D
	type l = snapshottest.L
	plain := snapshottest.Pickle(d{"segments", l{}, "device_traces", l{l{d{
		"action", "alloc", "addr", 512, "size", 512, "stream", 0, "time_us", 1,
	}}}}, 4)
	want, err := snapshot.ReadBytes(plain)
	testkit.Must(t, err)
	b := compress(t, plain)["xz crc32"]
	for n := 1; n < len(b); n++ {
		if _, err := snapshot.ReadBytes(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are accepted", n, len(b))
		}
	}
	header := 4 * (int(b[12]) + 1) // bytes of the block's
	for i := range b {
		flipped := bytes.Clone(b)
		flipped[i] ^= 1 << (i % 8)
		s, err := snapshot.ReadBytes(flipped)
		if err == nil && (i < 12+header || !slices.Equal(s.Traces[0].Events, want.Traces[0].Events)) {
			t.Errorf("bit %d of byte %d of %d is flipped, and nothing is noticed", i%8, i, len(b))
		}
	}
	change := func(at int, value byte) []byte {
		changed := bytes.Clone(b)
		changed[at] = value
		binary.LittleEndian.PutUint32(changed[8:], crc32.ChecksumIEEE(changed[6:8]))
		binary.LittleEndian.PutUint32(changed[12+header-4:], crc32.ChecksumIEEE(changed[12:12+header-4]))
		return changed
	}
	if _, err := snapshot.ReadBytes(change(7, b[7])); err != nil {
		t.Errorf("nothing is changed: %v", err)
	}
	for _, c := range []struct {
		at    int
		value byte
		want  string
	}{
		{6, 1, "bad stream header"},
		{7, 16, "bad stream header"},
		{7, 2, "unknown check 2"},
		{7, 15, "unknown check 15"},
		{7, 4, "checksum of a block is wrong"},
		{13, b[13] | 1, "a filter other than LZMA2 alone"},
		{13, b[13] | 0x20, "a filter other than LZMA2 alone"},
		{len(b) - 1, 'z', "bad footer"},
		{len(b) - 2, 'y', "bad footer"},
	} {
		if _, err := snapshot.ReadBytes(change(c.at, c.value)); err == nil || !contains(err, c.want) {
			t.Errorf("byte %d is %d: %v, want %q", c.at, c.value, err, c.want)
		}
	}
}

func TestTwoXzStreams(t *testing.T) {
	plain, _ := generated(t, snapshottest.Config{Seed: 3, Events: 500, Live: 100})
	one := compress(t, plain)["xz"]
	s, err := snapshot.ReadBytes(slices.Concat(one, make([]byte, 8), one)) // with padding between
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "what follows the pickle", s.Skipped[0],
		snapshot.Skip{What: "bytes after the pickle", Count: len(plain), Dropped: true})
}

// TestXzOfXzUtils reads a file that the xz program wrote, with several blocks.
func TestXzOfXzUtils(t *testing.T) {
	b, err := os.ReadFile("testdata/blocks.pickle.xz")
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.ReadBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	_, sum := generated(t, snapshottest.Config{Seed: 3, Events: 2000})
	testkit.Equal(t, "events", len(s.Traces[0].Events), sum.Events)
}

func TestDecompressionBombs(t *testing.T) {
	// A pickle that goes on and on: None pushed and popped.
	bomb := append([]byte("\x80\x04"), bytes.Repeat([]byte("N0"), 1<<20)...)
	for name, b := range compress(t, bomb) {
		if name != "gzip" && name != "zstd" && name != "xz" {
			continue
		}
		_, err := snapshot.ReadLimited(bytes.NewReader(b), snapshot.Limits{Ratio: 10, Free: 1 << 20})
		if !errors.Is(err, snapshot.ErrRatio) {
			t.Errorf("%s: %v, want ErrRatio", name, err)
		}
	}
	plain, _ := generated(t, snapshottest.Config{Seed: 3, Events: 1000, Live: 200})
	var wide bytes.Buffer
	w, err := zstd.NewWriter(&wide, zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil { // so that the size is not known and the window counts
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"zstd": wide.Bytes(), "xz": compress(t, plain)["xz"]} {
		if _, err := snapshot.ReadLimited(bytes.NewReader(b), snapshot.Limits{Window: 1 << 20}); err == nil {
			t.Errorf("%s: a window over the limit: no error", name)
		}
	}
	if _, err := snapshot.ReadBytes(xzBlocks(26, 1000)); !errors.Is(err, snapshot.ErrRatio) {
		t.Errorf("xz of many small blocks with large dictionaries: %v, want ErrRatio", err)
	}
	if _, err := snapshot.ReadBytes(xzBlocks(39, 1)); err == nil || !contains(err, "over Limits.Window") {
		t.Errorf("xz with a dictionary of 3 GiB: %v", err)
	}
}

// xzBlocks is an xz file of n blocks of one byte, each with a dictionary of the size that code stands for. The bytes
// are a pickle that goes on and on.
func xzBlocks(code byte, n int) []byte {
	b := []byte{0xfd, '7', 'z', 'X', 'Z', 0, 0, 0}
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[6:8]))
	for i := range n {
		h := []byte{2, 0, 0x21, 1, code, 0, 0, 0}
		b = append(b, binary.LittleEndian.AppendUint32(h, crc32.ChecksumIEEE(h))...)
		data := byte('N')
		if i < 2 {
			data = "\x80\x04"[i]
		}
		b = append(b, 1, 0, 0, data, 0, 0, 0, 0) // a chunk of one byte stored, the end, padding
	}
	return b
}
