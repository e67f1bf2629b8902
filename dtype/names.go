package dtype

import (
	"fmt"
	"slices"
	"strings"
)

// The names of each type; empty if the library does not have the type.
var names = [count]struct {
	torch       string // without "torch."
	numpy       string // the type code of a descr, without the byte order
	safetensors string // https://github.com/huggingface/safetensors, the enumeration Dtype
	gomlx       string // https://github.com/gomlx/gomlx, pkg/core/dtypes
	aliases     string // further ones in use
}{
	Bool:         {"bool", "b1", "BOOL", "Bool", "pred"},
	Int8:         {"int8", "i1", "I8", "Int8", "char s8"},
	Int16:        {"int16", "i2", "I16", "Int16", "short s16"},
	Int32:        {"int32", "i4", "I32", "Int32", "int s32"},
	Int64:        {"int64", "i8", "I64", "Int64", "long s64"},
	Uint8:        {"uint8", "u1", "U8", "Uint8", "byte"},
	Uint16:       {"uint16", "u2", "U16", "Uint16", ""},
	Uint32:       {"uint32", "u4", "U32", "Uint32", ""},
	Uint64:       {"uint64", "u8", "U64", "Uint64", ""},
	Float16:      {"float16", "f2", "F16", "Float16", "half fp16"},
	Float32:      {"float32", "f4", "F32", "Float32", "float fp32"},
	Float64:      {"float64", "f8", "F64", "Float64", "double fp64"},
	BFloat16:     {"bfloat16", "", "BF16", "BFloat16", ""},
	Complex64:    {"complex64", "c8", "C64", "Complex64", "cfloat"},
	Complex128:   {"complex128", "c16", "", "Complex128", "cdouble c128"},
	Float8E5M2:   {"float8_e5m2", "", "F8_E5M2", "F8E5M2", "e5m2 fp8_e5m2"},
	Float8E4M3FN: {"float8_e4m3fn", "", "F8_E4M3", "F8E4M3FN", "e4m3 e4m3fn fp8_e4m3 fp8_e4m3fn float8_e4m3"},
}

// String returns the name that PyTorch prints after "torch.": "float32", "float8_e4m3fn". If d is not valid it returns
// "invalid" and the number.
func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("invalid(%d)", uint8(d))
	}
	return names[d].torch
}

// PyTorch returns PyTorch's name: "torch.float32". It panics if d is not valid.
func (d DType) PyTorch() string {
	d.check("PyTorch")
	return "torch." + names[d].torch
}

// NumPy returns NumPy's descr of an array of d on a little-endian machine: "<f4", "|b1". It reports false for types
// that NumPy does not have: bfloat16 and the 8-bit floats, and if d is not valid.
func (d DType) NumPy() (descr string, ok bool) {
	if !d.Valid() || names[d].numpy == "" {
		return "", false
	}
	if d.Size() == 1 {
		return "|" + names[d].numpy, true
	}
	return "<" + names[d].numpy, true
}

// SafeTensors returns the name in the headers of safetensors files: "F32". It reports false for complex128, which the
// format does not have, and if d is not valid.
func (d DType) SafeTensors() (name string, ok bool) {
	if !d.Valid() || names[d].safetensors == "" {
		return "", false
	}
	return names[d].safetensors, true
}

// Gomlx returns the name in the dtypes package of github.com/gomlx/gomlx: "Float32". It panics if d is not valid.
func (d DType) Gomlx() string {
	d.check("Gomlx")
	return names[d].gomlx
}

// byName has every name in lower case, but for numpy's: its "i8" is of eight bytes, and others' of eight bits.
var byName = func() map[string]DType {
	m := map[string]DType{}
	for _, d := range All() {
		n := names[d]
		for _, name := range append(strings.Fields(n.aliases), n.torch, n.safetensors, n.gomlx) {
			if name != "" {
				m[strings.ToLower(name)] = d
			}
		}
	}
	return m
}()

// Parse returns the type of a name: PyTorch's, with or without "torch.", or an alias ("half", "long"), the name of
// safetensors or gomlx, a common short form ("fp16", "i64", "e4m3"), or NumPy's descr with its byte order ("<f4"). Case
// is ignored except in a descr. As in PyTorch "float" has 32 bits, "int" 32 and "long" 64. ParseNumPy parses NumPy's
// names without byte order, whose "i8" has eight bytes and not bits. The error is a *NameError.
func Parse(name string) (DType, error) {
	if name != "" && strings.IndexByte("<>|=", name[0]) >= 0 {
		d, bigEndian, err := ParseNumPy(name)
		if err == nil && bigEndian {
			err = &NameError{Name: name, Known: "nothing big-endian: its bytes must be swapped first (ParseNumPy)"}
		}
		if err != nil {
			return Invalid, err
		}
		return d, nil
	}
	if d, ok := byName[strings.TrimPrefix(strings.ToLower(name), "torch.")]; ok {
		return d, nil
	}
	all := make([]string, 0, count)
	for _, d := range All() {
		all = append(all, d.String())
	}
	return Invalid, &NameError{Name: name, Known: strings.Join(all, ", ") + ", and their names in PyTorch, numpy, " +
		"safetensors and gomlx"}
}

// ParseNumPy returns the type of a NumPy descr, such as "<f4" or "|b1", and whether its elements are big-endian. The
// byte order may be absent, which means the machine's. bigEndian is false for types of one byte. The error is a
// *NameError.
func ParseNumPy(descr string) (d DType, bigEndian bool, err error) {
	code, order := descr, byte('=')
	if descr != "" && strings.IndexByte("<>|=", descr[0]) >= 0 {
		code, order = descr[1:], descr[0]
	}
	if code == "?" {
		code = "b1"
	}
	i := slices.IndexFunc(All(), func(d DType) bool { return code != "" && names[d].numpy == code })
	if i < 0 || order == '|' && All()[i].Size() > 1 {
		return Invalid, false, &NameError{Name: descr, Known: "the descrs |b1, |i1, |u1, and those of i2, i4, i8, " +
			"u2, u4, u8, f2, f4, f8, c8, c16 with < or >"}
	}
	d = All()[i]
	return d, order == '>' && d.Size() > 1, nil
}

// A NameError reports a name that is not a type's.
type NameError struct {
	Name  string // as given
	Known string // the valid names
}

func (e *NameError) Error() string {
	return fmt.Sprintf("dtype: %q is the name of no type; known are %s", e.Name, e.Known)
}

// MarshalText returns String's name, or a *NameError if d is not valid.
func (d DType) MarshalText() ([]byte, error) {
	if !d.Valid() {
		return nil, &NameError{Name: d.String(), Known: "the types of All"}
	}
	return []byte(d.String()), nil
}

// UnmarshalText sets d to the result of Parse.
func (d *DType) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
