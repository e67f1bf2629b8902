package npy

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/internal/atomicfile"
	"github.com/ashlar-go/ashlar/internal/countio"
	"github.com/ashlar-go/ashlar/tensor"
)

// ErrNoArray is matched by the error for a name that is not in an archive.
var ErrNoArray = errors.New("no such array")

const ending = ".npy"

// deflateRatio is the largest expansion of deflate: a run of 258 bytes takes at least two bits.
const deflateRatio = 1032

// An Archive is an open .npz file: arrays by name. It is safe for concurrent use.
type Archive struct {
	path  string
	file  *os.File
	names []string // in the order of the archive
	files map[string]*zip.File
}

// OpenZip opens an archive and reads its directory. It ignores entries whose names do not end in .npy and refuses
// duplicate names and arrays that share bytes. The error matches ErrFormat, or is an error of the system. Close the
// archive after use.
func OpenZip(path string) (*Archive, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	a := &Archive{path: path, file: f, files: map[string]*zip.File{}}
	if err := a.readDirectory(); err != nil {
		return nil, errors.Join(located(err, path, ""), f.Close())
	}
	return a, nil
}

func (a *Archive) readDirectory() error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return wrong("not a regular file")
	}
	z, err := zip.NewReader(a.file, info.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // no name is used as a path
		return wrong("the archive: %v", err)
	}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ending)
		if !ok {
			continue
		}
		if a.files[name] != nil {
			return wrong("the array %.100q is duplicate", name)
		}
		a.files[name] = f
		a.names = append(a.names, name)
	}
	return a.checkOverlap()
}

// checkOverlap refuses an archive in which arrays share bytes: with them a small file declares any number of large
// arrays. Writers of archives write each array once.
func (a *Archive) checkOverlap() error {
	type extent struct {
		begin, end uint64
		name       string
	}
	extents := make([]extent, 0, len(a.names))
	for _, name := range a.names {
		f := a.files[name]
		begin, err := f.DataOffset()
		if err != nil {
			return wrong("the array %.100q: %v", name, err)
		}
		if f.CompressedSize64 > 0 {
			extents = append(extents, extent{uint64(begin), uint64(begin) + f.CompressedSize64, name})
		}
	}
	slices.SortFunc(extents, func(x, y extent) int { return cmp.Compare(x.begin, y.begin) })
	for i := 1; i < len(extents); i++ {
		if x, y := extents[i-1], extents[i]; y.begin < x.end {
			return wrong("the arrays %.100q and %.100q overlap: bytes %d to %d and %d to %d", x.name, y.name, x.begin,
				x.end, y.begin, y.end)
		}
	}
	return nil
}

// Names returns the names of the arrays, without ".npy", in the order of the archive. The caller may change the slice.
func (a *Archive) Names() []string { return slices.Clone(a.names) }

// Info reads the header of an array and checks it against the sizes that the archive declares.
func (a *Archive) Info(name string) (Info, error) {
	n, r, err := a.open(name)
	if err != nil {
		return Info{}, err
	}
	return n, r.Close()
}

// open returns the header of an array and a reader of its elements.
func (a *Archive) open(name string) (n Info, r io.ReadCloser, err error) {
	f := a.files[name]
	if f == nil {
		return n, nil, fmt.Errorf("npy: %s: %w: %.100q", a.path, ErrNoArray, name)
	}
	n, r, err = openEntry(f)
	if err != nil {
		return n, nil, located(err, a.path, name)
	}
	return n, r, nil
}

func openEntry(f *zip.File) (n Info, r io.ReadCloser, err error) {
	size, packed := f.UncompressedSize64, f.CompressedSize64
	switch {
	case f.Flags&1 != 0:
		return n, nil, fmt.Errorf("it is encrypted: %w", errors.ErrUnsupported)
	case f.Method == zip.Store && packed != size, f.Method == zip.Deflate && size/deflateRatio > packed:
		return n, nil, wrong("%d bytes are declared to expand to %d", packed, size)
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return n, nil, fmt.Errorf("compression method %d, want 0 (stored) or 8 (deflated): %w", f.Method,
			errors.ErrUnsupported)
	}
	if r, err = f.Open(); err != nil {
		return n, nil, wrong("%v", err)
	}
	before := &countio.Reader{R: r}
	if n, err = readHeader(before); err == nil && uint64(before.N)+uint64(n.Size) != size {
		err = wrong("%s%v takes %d bytes after a header of %d, and the archive declares %d", n.Descr, n.Shape, n.Size,
			before.N, size)
	}
	if err != nil {
		return n, nil, errors.Join(err, r.Close())
	}
	return n, r, nil
}

// Load returns an array at p after verifying its checksum. The caller or p's scope owns it. The error matches
// ErrNoArray, ErrFormat or errors.ErrUnsupported, or is an error of the system or the device.
func (a *Archive) Load(p *tensor.Place, name string) (*tensor.Tensor, error) {
	n, r, err := a.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t, err := n.read(p, r)
	if err != nil {
		return nil, located(unpacked(err), a.path, name)
	}
	var more [1]byte
	if _, err := io.ReadFull(r, more[:]); err != io.EOF { // the reader verifies the checksum here
		t.Release()
		if err == nil {
			err = wrong("more bytes than the archive declares")
		}
		return nil, located(unpacked(err), a.path, name)
	}
	return t, nil
}

// unpacked makes errors of decompression match ErrFormat.
func unpacked(err error) error {
	if errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrFormat) || strings.HasPrefix(err.Error(), "flate: ") {
		return wrong("%v", err)
	}
	return err
}

// Close closes the file. Loaded arrays stay valid.
func (a *Archive) Close() error { return a.file.Close() }

// ZipOptions control writing an archive. The zero value is that of NumPy's savez.
type ZipOptions struct {
	Deflate bool // compress, as savez_compressed
}

// WriteZip writes an archive of the tensors, by name, for NumPy's load. Write defines the form of each.
func WriteZip(w io.Writer, tensors map[string]*tensor.Tensor, o ZipOptions) error {
	if err := writeZip(w, tensors, o); err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}

// WriteZipFile is WriteZip to a file, which is complete or absent.
func WriteZipFile(path string, tensors map[string]*tensor.Tensor, o ZipOptions) error {
	if err := atomicfile.Write(path, atomicfile.Options{}, func(w io.Writer) error { return writeZip(w, tensors, o) }); err != nil {
		return located(err, path, "")
	}
	return nil
}

func writeZip(w io.Writer, tensors map[string]*tensor.Tensor, o ZipOptions) error {
	z := zip.NewWriter(w)
	method := zip.Store
	if o.Deflate {
		method = zip.Deflate
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if !utf8.ValidString(name) {
			return fmt.Errorf("the name %.100q is not UTF-8", name)
		}
		// The date is NumPy's, so that the same tensors make the same file.
		e, err := z.CreateHeader(&zip.FileHeader{
			Name: name + ending, Method: method,
			Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC),
		})
		if err == nil {
			err = write(e, tensors[name])
		}
		if err != nil {
			return fmt.Errorf("array %.100q: %w", name, err)
		}
	}
	return z.Close()
}
