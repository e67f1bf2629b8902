package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/dtype"
)

// maxHeader is the largest header in bytes, the limit of the reference implementation.
const maxHeader = 100_000_000

// The types of the format, in the order of the reference's enumeration Dtype ("in increasing alignment order"). Tensors
// are written in the reverse order.
var formatTypes = []struct {
	name string
	bits int64
}{
	{"BOOL", 8},
	{"F4", 4},
	{"F6_E2M3", 6},
	{"F6_E3M2", 6},
	{"U8", 8},
	{"I8", 8},
	{"F8_E5M2", 8},
	{"F8_E4M3", 8},
	{"F8_E8M0", 8},
	{"F8_E4M3FNUZ", 8},
	{"F8_E5M2FNUZ", 8},
	{"I16", 16},
	{"U16", 16},
	{"F16", 16},
	{"BF16", 16},
	{"I32", 32},
	{"U32", 32},
	{"F32", 32},
	{"C64", 64},
	{"F64", 64},
	{"I64", 64},
	{"U64", 64},
}

// typeRank returns the position of a type's name in formatTypes, or -1.
func typeRank(name string) int {
	for i := range formatTypes {
		if formatTypes[i].name == name {
			return i
		}
	}
	return -1
}

// ErrFormat is matched by every error about invalid contents of a file. A *FormatError has the details.
var ErrFormat = errors.New("not a valid safetensors file")

// A FormatError describes invalid contents of a file. It matches ErrFormat.
type FormatError struct {
	Path   string // as given
	Tensor string // the tensor with the invalid entry; empty if it is another part of the file
	Detail string // the fault, with the actual and the expected values
}

func (e *FormatError) Error() string {
	text := "safetensors: "
	if e.Path != "" {
		text += e.Path + ": "
	}
	if e.Tensor != "" {
		text += "tensor " + quoted(e.Tensor) + ": "
	}
	return text + e.Detail
}

// Unwrap returns ErrFormat.
func (e *FormatError) Unwrap() error { return ErrFormat }

// Info describes a tensor in a file.
type Info struct {
	Name  string
	DType dtype.DType // Invalid if the type has no dtype; such a tensor cannot be loaded
	Type  string      // the name of the type in the format: "F32", "F8_E8M0"
	Shape []int       // the caller may change it
	Size  int64       // in the file, in bytes
	Path  string      // of the file with the tensor
}

// An entry is an Info with the position of the data.
type entry struct {
	Info
	begin int64 // relative to the end of the header; the data ends at begin + Size
}

// A header is the checked header of a file.
type header struct {
	entries  []entry // in the order of their data in the file
	metadata map[string]string
	data     int64 // the position of the tensors' data
}

// prefixed adds the package's name to an error that does not have it.
func prefixed(err error) error {
	var format *FormatError
	if errors.As(err, &format) {
		return err
	}
	return fmt.Errorf("safetensors: %w", err)
}

// checkStart checks the first bytes of a file.
func checkStart(path string, start []byte) error {
	detail := ""
	switch {
	case len(start) == 0:
		detail = "the file is empty"
	case len(start) < 8:
		detail = fmt.Sprintf("not a safetensors file: %d bytes, and the length of the header alone takes 8", len(start))
	case binary.LittleEndian.Uint64(start) > maxHeader:
		detail = fmt.Sprintf("not a safetensors file: it begins with %q, and not with the length of a header, at most "+
			"%d bytes", start[:8], maxHeader)
	case binary.LittleEndian.Uint64(start) == 0 || len(start) > 8 && start[8] != '{':
		detail = "the header does not begin with '{'"
	default:
		return nil
	}
	return &FormatError{Path: path, Detail: detail}
}

// parse reads the header of a file and checks all of it against the file's bytes. The entries of the result lie in the
// file and cover it without gap or overlap.
func parse(path string, file []byte) (*header, error) {
	wrong := func(format string, args ...any) error {
		return &FormatError{Path: path, Detail: fmt.Sprintf(format, args...)}
	}
	if err := checkStart(path, file); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(file)
	if n > uint64(len(file)-8) {
		return nil, wrong("a header of %d bytes in a file that has %d after its length", n, len(file)-8)
	}
	text := file[8 : 8+n]
	if !utf8.Valid(text) {
		return nil, wrong("the header is not UTF-8")
	}
	h := &header{data: 8 + int64(n)}
	s := &scanner{text: text}
	err := s.object(func(name string) error {
		if name == "__metadata__" {
			return h.readMetadata(s)
		}
		e, err := readEntry(s, name)
		if err == nil {
			err = e.check()
		}
		if err != nil {
			return &FormatError{Path: path, Tensor: name, Detail: err.Error()}
		}
		e.Path = path
		h.entries = append(h.entries, e)
		return nil
	})
	if err == nil {
		err = s.end()
	}
	var format *FormatError
	if err != nil && !errors.As(err, &format) {
		err = wrong("the header: %v", err)
	}
	if err != nil {
		return nil, err
	}
	return h, h.cover(path, int64(len(file))-h.data)
}

func (h *header) readMetadata(s *scanner) error {
	h.metadata = map[string]string{}
	err := s.object(func(key string) error {
		value, err := s.str()
		h.metadata[key] = value
		return err
	})
	if err != nil {
		return fmt.Errorf("__metadata__: %w", err)
	}
	return nil
}

// readEntry reads the entry of one tensor. Size is computed from data_offsets.
func readEntry(s *scanner, name string) (entry, error) {
	e := entry{Info: Info{Name: name}}
	var missing [3]bool
	fields := []string{"dtype", "shape", "data_offsets"}
	for i := range missing {
		missing[i] = true
	}
	err := s.object(func(key string) error {
		i := slices.Index(fields, key)
		if i < 0 {
			return s.wrong("the unknown field %s", quoted(key))
		}
		missing[i] = false
		switch i {
		case 0:
			return e.readType(s)
		case 1:
			e.Shape = []int{}
			return s.array(func() error {
				length, err := s.natural()
				if err == nil && length > math.MaxInt {
					err = s.wrong("a length of %d, at most %d on this machine", length, math.MaxInt)
				}
				e.Shape = append(e.Shape, int(length))
				return err
			})
		}
		return e.readOffsets(s)
	})
	if err != nil {
		return e, err
	}
	if i := slices.Index(missing[:], true); i >= 0 {
		return e, fmt.Errorf("the field %s is missing", fields[i])
	}
	return e, nil
}

func (e *entry) readType(s *scanner) error {
	name, err := s.str()
	if err != nil {
		return err
	}
	if typeRank(name) < 0 {
		return s.wrong("%s is not an element type of the format", quoted(name))
	}
	e.Type = name
	if d, err := dtype.Parse(name); err == nil {
		if own, ok := d.SafeTensors(); ok && own == name { // dtype.Parse also accepts names of other libraries
			e.DType = d
		}
	}
	return nil
}

func (e *entry) readOffsets(s *scanner) error {
	var offsets []int64
	err := s.array(func() error {
		if len(offsets) == 2 {
			return s.wrong("data_offsets has more than two numbers")
		}
		n, err := s.natural()
		offsets = append(offsets, n)
		return err
	})
	switch {
	case err != nil:
		return err
	case len(offsets) != 2:
		return s.wrong("data_offsets has %d numbers, want two", len(offsets))
	case offsets[0] > offsets[1]:
		return s.wrong("data_offsets [%d, %d] end before they begin", offsets[0], offsets[1])
	}
	e.begin, e.Size = offsets[0], offsets[1]-offsets[0]
	return nil
}

// check returns an error unless the size of the data is that of the type and shape.
func (e *entry) check() error {
	n := int64(1)
	for _, length := range e.Shape { // in order, as in the reference: a later 0 does not undo an overflow
		if length > 0 && n > math.MaxInt64/int64(length) {
			return fmt.Errorf("the shape %s has more elements than %d", brief(e.Shape), int64(math.MaxInt64))
		}
		n *= int64(length)
	}
	bits := formatTypes[typeRank(e.Type)].bits
	if n > math.MaxInt64/bits {
		return fmt.Errorf("%s%s takes more than %d bits", e.Type, brief(e.Shape), int64(math.MaxInt64))
	}
	if n*bits%8 != 0 {
		return fmt.Errorf("%s%s takes %d bits, which is not a whole number of bytes", e.Type, brief(e.Shape), n*bits)
	}
	if size := n * bits / 8; size != e.Size {
		return fmt.Errorf("%s%s takes %d bytes, and data_offsets [%d, %d] are %d", e.Type, brief(e.Shape), size,
			e.begin, e.begin+e.Size, e.Size)
	}
	return nil
}

// cover sorts the entries by position. It returns an error unless they cover size bytes without gap or overlap.
func (h *header) cover(path string, size int64) error {
	slices.SortFunc(h.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	end := int64(0)
	for i := range h.entries {
		e := &h.entries[i]
		if e.begin != end {
			what := "an overlap"
			if e.begin > end {
				what = "a gap"
			}
			return &FormatError{path, e.Name, fmt.Sprintf("it begins at byte %d, and the bytes of those before it "+
				"end at %d: %s", e.begin, end, what)}
		}
		if end += e.Size; end > size {
			return &FormatError{path, e.Name, fmt.Sprintf("it ends at byte %d of the data, of which the file has %d",
				end, size)}
		}
	}
	if end != size {
		return &FormatError{Path: path, Detail: fmt.Sprintf("the tensors end at byte %d of the data, of which the "+
			"file has %d", end, size)}
	}
	return nil
}

// brief returns a shape for messages, with a limited length.
func brief(shape []int) string {
	const most = 20
	if len(shape) <= most {
		return fmt.Sprint(shape)
	}
	return fmt.Sprintf("%v… (%d axes)", shape[:most], len(shape))
}
