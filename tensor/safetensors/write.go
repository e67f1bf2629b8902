package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/internal/atomicfile"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
)

// Write writes tensors by name, and metadata if there is any, in the form of the reference implementation, byte for
// byte: tensors in the reverse order of the format's types, which aligns all of them, and by name within a type, after
// a header padded with spaces to a multiple of 8 bytes. Metadata is sorted by key; the reference leaves its order
// undefined. Write waits for the work that writes the tensors, and copies them from their devices in pieces. They may
// be views, and on several devices. A tensor with several names is written once for each.
func Write(w io.Writer, tensors map[string]*tensor.Tensor, metadata map[string]string) error {
	plan, err := planned(tensors, metadata)
	if err != nil {
		return err
	}
	return plan.write(w)
}

// WriteFile is Write to a file, which replaces one of that name. The file is complete or absent, and is on disk when
// WriteFile returns.
func WriteFile(path string, tensors map[string]*tensor.Tensor, metadata map[string]string) error {
	plan, err := planned(tensors, metadata)
	if err != nil {
		return err
	}
	return plan.writeFile(path)
}

// A plan is the layout of a file to write.
type plan struct {
	tensors []namedTensor // in the order of the file
	header  []byte        // including its length
}

type namedTensor struct {
	name, kind string
	t          *tensor.Tensor
}

// planned chooses the order and makes the header.
func planned(tensors map[string]*tensor.Tensor, metadata map[string]string) (*plan, error) {
	p := &plan{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		switch {
		case !utf8.ValidString(name):
			return nil, fmt.Errorf("safetensors: the name %s is not UTF-8", quoted(name))
		case name == "__metadata__":
			return nil, fmt.Errorf("safetensors: a tensor cannot have the name %q, reserved for the metadata", name)
		case !t.Defined():
			return nil, fmt.Errorf("safetensors: tensor %s is undefined", quoted(name))
		}
		kind, ok := t.DType().SafeTensors()
		if !ok {
			return nil, fmt.Errorf("safetensors: tensor %s is %s: the format has no %v; view it as pairs of real "+
				"numbers (ViewAs)", quoted(name), t.Brief(), t.DType())
		}
		p.tensors = append(p.tensors, namedTensor{name, kind, t})
	}
	slices.SortStableFunc(p.tensors, func(a, b namedTensor) int {
		return cmp.Compare(typeRank(b.kind), typeRank(a.kind))
	})
	return p, p.makeHeader(metadata)
}

func (p *plan) makeHeader(metadata map[string]string) error {
	text := append(make([]byte, 8), '{')
	if len(metadata) > 0 {
		text = append(text, `"__metadata__":{`...)
		for i, key := range slices.Sorted(maps.Keys(metadata)) {
			value := metadata[key]
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				return fmt.Errorf("safetensors: the metadata %s: %s are not UTF-8", quoted(key), quoted(value))
			}
			if i > 0 {
				text = append(text, ',')
			}
			text = appendString(append(appendString(text, key), ':'), value)
		}
		text = append(text, '}')
	}
	at := int64(0)
	for _, n := range p.tensors {
		if len(text) > 9 {
			text = append(text, ',')
		}
		text = append(appendString(text, n.name), `:{"dtype":"`...)
		text = append(append(text, n.kind...), `","shape":[`...)
		for i, length := range n.t.Shape() {
			if i > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendInt(text, int64(length), 10)
		}
		text = append(text, `],"data_offsets":[`...)
		text = append(strconv.AppendInt(text, at, 10), ',')
		at += n.t.Size()
		text = append(strconv.AppendInt(text, at, 10), `]}`...)
	}
	text = append(text, '}')
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	n := len(text) - 8
	if n > maxHeader {
		return fmt.Errorf("safetensors: a header of %d bytes exceeds the limit of %d: use several files (WriteSharded)",
			n, maxHeader)
	}
	binary.LittleEndian.PutUint64(text, uint64(n))
	p.header = text
	return nil
}

// appendString appends a JSON string as the reference writes it, with the fewest escapes.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			if c < ' ' {
				b = fmt.Appendf(b, `\u%04x`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}

func (p *plan) write(w io.Writer) error {
	if _, err := w.Write(p.header); err != nil {
		return fmt.Errorf("safetensors: write the header: %w", err)
	}
	for _, n := range p.tensors {
		if err := transfer.Out(w, n.t); err != nil {
			return fmt.Errorf("safetensors: write tensor %s: %w", quoted(n.name), err)
		}
	}
	return nil
}

func (p *plan) writeFile(path string) error {
	if err := atomicfile.Write(path, atomicfile.Options{}, p.write); err != nil {
		return fmt.Errorf("safetensors: write %s: %w", path, err)
	}
	return nil
}
