package view

import (
	"encoding/binary"
	"encoding/json"
	"maps"
)

// A container is an answer with arrays: a head of 16 bytes, a JSON header, and the arrays, each at a multiple of 8
// bytes. All numbers are little-endian.
type container struct {
	header map[string]any
	names  []string
	arrays []any
}

// containerMagic and containerVersion begin a container.
const (
	containerMagic   = "ASHV"
	containerVersion = 1
	containerHead    = 16
)

// An arrayPlace says where an array is in a container.
type arrayPlace struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"` // from the start of the container, in bytes
	Length int    `json:"length"` // items
}

func newContainer(header map[string]any) *container { return &container{header: header} }

// add adds an array: a slice of uint8, uint16, uint32, uint64, float32 or float64.
func (c *container) add(name string, array any) {
	c.names = append(c.names, name)
	c.arrays = append(c.arrays, array)
}

// encode returns the container.
func (c *container) encode() []byte {
	places := map[string]arrayPlace{}
	header := maps.Clone(c.header)
	header["arrays"] = places
	sum := 0
	for i, a := range c.arrays {
		kind, length := arrayKind(a)
		places[c.names[i]] = arrayPlace{Type: kind, Offset: sum, Length: length}
		sum += aligned(binary.Size(a))
	}
	// The offsets are part of the header, so its length is that with the largest offsets.
	begin := 0
	for {
		text, err := json.Marshal(header)
		if err != nil {
			panic("view: the header of a container: " + err.Error())
		}
		if next := aligned(containerHead + len(text)); next > begin {
			shift(places, next-begin)
			begin = next
			continue
		}
		return c.assemble(text, begin, sum)
	}
}

// assemble returns the bytes of a container whose arrays begin at an offset.
func (c *container) assemble(text []byte, begin, sum int) []byte {
	out := make([]byte, containerHead, begin+sum)
	copy(out, containerMagic)
	binary.LittleEndian.PutUint32(out[4:], containerVersion)
	binary.LittleEndian.PutUint32(out[8:], uint32(begin-containerHead))
	out = append(out, text...)
	for len(out) < begin {
		out = append(out, ' ')
	}
	for _, a := range c.arrays {
		var err error
		if out, err = binary.Append(out, binary.LittleEndian, a); err != nil {
			panic("view: an array of a container: " + err.Error())
		}
		for len(out)%8 != 0 {
			out = append(out, 0)
		}
	}
	return out
}

// shift moves all arrays by some bytes.
func shift(places map[string]arrayPlace, bytes int) {
	for name, p := range places {
		p.Offset += bytes
		places[name] = p
	}
}

// aligned rounds up to a multiple of 8.
func aligned(n int) int { return (n + 7) &^ 7 }

// arrayKind returns the name of the type of an array and its length.
func arrayKind(a any) (kind string, length int) {
	switch a := a.(type) {
	case []uint8:
		return "u8", len(a)
	case []uint16:
		return "u16", len(a)
	case []uint32:
		return "u32", len(a)
	case []uint64:
		return "u64", len(a)
	case []float32:
		return "f32", len(a)
	case []float64:
		return "f64", len(a)
	}
	panic("view: an array of a type that containers lack")
}
