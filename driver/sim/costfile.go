package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// The file of a cost model is one JSON object:
//
//	about          what was measured, and how: text
//	calls          the costs by method, named as in driver.Error ("Alloc", "VirtualMemory.Map"): for each a list of
//	               points {"size": S, "ns": N}, in ascending order of S; a method that is not there costs nothing
//	map_next_ns    nanoseconds for each further page of the same VirtualMemory.Map
//	unmap_next_ns  the same of VirtualMemory.Unmap
//
// Sizes are bytes, or pieces of work in a graph, and costs are whole nanoseconds; CostModel and Curve say what they
// mean. Other keys are errors.
type costFile struct {
	About     string                 `json:"about"`
	Calls     map[string][]costPoint `json:"calls"`
	MapNext   int64                  `json:"map_next_ns"`
	UnmapNext int64                  `json:"unmap_next_ns"`
}

type costPoint struct {
	Size int64 `json:"size"`
	NS   int64 `json:"ns"`
}

// maxCostFile is the maximum size of a file, in bytes: far more than a model needs.
const maxCostFile = 1 << 20

// ReadCostModel reads a model in the format of WriteTo. The error names an unknown key or method, a negative cost,
// sizes that do not ascend, or text after the object.
func ReadCostModel(r io.Reader) (*CostModel, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxCostFile+1))
	if err != nil {
		return nil, fmt.Errorf("read a cost model: %w", err)
	}
	if len(text) > maxCostFile {
		return nil, fmt.Errorf("read a cost model: more than %d bytes", maxCostFile)
	}
	m, err := parseCostModel(text)
	if err != nil {
		return nil, fmt.Errorf("read a cost model: %w", err)
	}
	return m, nil
}

func parseCostModel(text []byte) (*CostModel, error) {
	var f costFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more after the object")
	}
	m := &CostModel{About: f.About, MapNext: time.Duration(f.MapNext), UnmapNext: time.Duration(f.UnmapNext)}
	for _, method := range slices.Sorted(maps.Keys(f.Calls)) {
		c := slices.Index(callNames[:], method)
		if c < 0 {
			return nil, fmt.Errorf("calls has a method that is not known: %q", method)
		}
		for _, p := range f.Calls[method] {
			m.Calls[c] = append(m.Calls[c], Point{p.Size, time.Duration(p.NS)})
		}
	}
	return m, m.check()
}

// WriteTo writes the model as ReadCostModel reads it, a line for each method. A model that was read is written as the
// same text.
func (m *CostModel) WriteTo(w io.Writer) (int64, error) {
	about, err := json.Marshal(m.About)
	if err != nil {
		return 0, fmt.Errorf("write a cost model: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"about\": %s,\n  \"calls\": {", about)
	separator := "\n"
	for c, curve := range m.Calls {
		if len(curve) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s    %q: [", separator, Call(c).String())
		separator = ",\n"
		for i, p := range curve {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, `{"size": %d, "ns": %d}`, p.Size, int64(p.Cost))
		}
		b.WriteString("]")
	}
	fmt.Fprintf(&b, "\n  },\n  \"map_next_ns\": %d,\n  \"unmap_next_ns\": %d\n}\n", int64(m.MapNext),
		int64(m.UnmapNext))
	n, err := io.WriteString(w, b.String())
	if err != nil {
		return int64(n), fmt.Errorf("write a cost model: %w", err)
	}
	return int64(n), nil
}
