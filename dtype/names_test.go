package dtype_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
)

// The whole table: numbers and names as they stand in pjrt_c_api.h (PJRT_Buffer_Type), gomlx's pkg/core/dtypes, numpy,
// PyTorch, and safetensors' tensor.rs (Dtype).
func TestNames(t *testing.T) {
	rows := []struct {
		d                                      dtype.DType
		number, size                           int
		torch, numpy, safetensors, gomlx, goes string
	}{
		{dtype.Bool, 1, 1, "bool", "|b1", "BOOL", "Bool", "bool"},
		{dtype.Int8, 2, 1, "int8", "|i1", "I8", "Int8", "int8"},
		{dtype.Int16, 3, 2, "int16", "<i2", "I16", "Int16", "int16"},
		{dtype.Int32, 4, 4, "int32", "<i4", "I32", "Int32", "int32"},
		{dtype.Int64, 5, 8, "int64", "<i8", "I64", "Int64", "int64"},
		{dtype.Uint8, 6, 1, "uint8", "|u1", "U8", "Uint8", "uint8"},
		{dtype.Uint16, 7, 2, "uint16", "<u2", "U16", "Uint16", "uint16"},
		{dtype.Uint32, 8, 4, "uint32", "<u4", "U32", "Uint32", "uint32"},
		{dtype.Uint64, 9, 8, "uint64", "<u8", "U64", "Uint64", "uint64"},
		{dtype.Float16, 10, 2, "float16", "<f2", "F16", "Float16", "dtype.F16"},
		{dtype.Float32, 11, 4, "float32", "<f4", "F32", "Float32", "float32"},
		{dtype.Float64, 12, 8, "float64", "<f8", "F64", "Float64", "float64"},
		{dtype.BFloat16, 13, 2, "bfloat16", "", "BF16", "BFloat16", "dtype.BF16"},
		{dtype.Complex64, 14, 8, "complex64", "<c8", "C64", "Complex64", "complex64"},
		{dtype.Complex128, 15, 16, "complex128", "<c16", "", "Complex128", "complex128"},
		{dtype.Float8E5M2, 16, 1, "float8_e5m2", "", "F8_E5M2", "F8E5M2", "dtype.F8E5M2"},
		{dtype.Float8E4M3FN, 17, 1, "float8_e4m3fn", "", "F8_E4M3", "F8E4M3FN", "dtype.F8E4M3FN"},
	}
	if all := dtype.All(); len(all) != len(rows) {
		t.Fatalf("All has %d types", len(all))
	}
	for i, r := range rows {
		d := r.d
		if dtype.All()[i] != d || int(d) != r.number || d.Size() != r.size || int(d.GoType().Size()) != r.size {
			t.Errorf("%v: number %d, size %d, Go's size %d", d, d, d.Size(), d.GoType().Size())
		}
		numpy, hasNumPy := d.NumPy()
		safetensors, hasSafeTensors := d.SafeTensors()
		got := []string{d.String(), d.PyTorch(), numpy, safetensors, d.Gomlx(), d.GoType().String()}
		want := []string{r.torch, "torch." + r.torch, r.numpy, r.safetensors, r.gomlx, r.goes}
		if !reflect.DeepEqual(got, want) || hasNumPy != (r.numpy != "") || hasSafeTensors != (r.safetensors != "") {
			t.Errorf("%d: names %q, want %q", r.number, got, want)
		}
		for _, name := range got[:5] {
			if name == "" {
				continue
			}
			if back, err := dtype.Parse(name); back != d || err != nil {
				t.Errorf("Parse(%q) = %v, %v; want %v", name, back, err, d)
			}
		}
		if r.numpy == "" {
			continue
		}
		for order, big := range map[string]bool{"<": false, ">": true, "=": false, "": false, "|": false} {
			descr := order + r.numpy[1:]
			back, bigEndian, err := dtype.ParseNumPy(descr)
			if order == "|" && r.size > 1 {
				if err == nil {
					t.Errorf("ParseNumPy(%q) = %v", descr, back)
				}
			} else if back != d || bigEndian != (big && r.size > 1) || err != nil {
				t.Errorf("ParseNumPy(%q) = %v, %v, %v", descr, back, bigEndian, err)
			}
		}
	}
}

func TestParseAliases(t *testing.T) {
	for name, want := range map[string]dtype.DType{
		"half": dtype.Float16, "float": dtype.Float32, "double": dtype.Float64, "long": dtype.Int64, "int": dtype.Int32,
		"short": dtype.Int16, "byte": dtype.Uint8, "char": dtype.Int8, "cfloat": dtype.Complex64, "cdouble": dtype.Complex128,
		"torch.half": dtype.Float16, "torch.long": dtype.Int64, "bf16": dtype.BFloat16, "fp16": dtype.Float16,
		"fp32": dtype.Float32, "fp64": dtype.Float64, "f16": dtype.Float16, "f32": dtype.Float32, "f64": dtype.Float64,
		"i8": dtype.Int8, "i64": dtype.Int64, "u8": dtype.Uint8, "u64": dtype.Uint64, "s32": dtype.Int32, "PRED": dtype.Bool,
		"e4m3": dtype.Float8E4M3FN, "e5m2": dtype.Float8E5M2, "float8_e4m3": dtype.Float8E4M3FN, "C128": dtype.Complex128,
		"<i8": dtype.Int64, "|b1": dtype.Bool, "|?": dtype.Bool, "FLOAT32": dtype.Float32,
	} {
		if got, err := dtype.Parse(name); got != want || err != nil {
			t.Errorf("Parse(%q) = %v, %v; want %v", name, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	// F8E4M3 is another format of PJRT's, f4 could be numpy's or a float of four bits.
	for _, name := range []string{"", "float128", "torch.", "F8E4M3", "f4", "<x4", "<", ">f4", "|f4", "<V2", "complex32", "float32 "} {
		d, err := dtype.Parse(name)
		var e *dtype.NameError
		if d != dtype.Invalid || !errors.As(err, &e) || e.Name != name {
			t.Errorf("Parse(%q) = %v, %v", name, d, err)
		}
	}
	if _, err := dtype.Parse("float23"); !strings.Contains(err.Error(), "float32") || !strings.Contains(err.Error(), "float23") {
		t.Errorf("the error names not what is known: %v", err)
	}
}

func TestText(t *testing.T) {
	type config struct{ D dtype.DType }
	for _, d := range dtype.All() {
		text, err := json.Marshal(config{d})
		if err != nil || string(text) != `{"D":"`+d.String()+`"}` {
			t.Errorf("%v: %s, %v", d, text, err)
		}
		var back config
		if err := json.Unmarshal(text, &back); err != nil || back.D != d {
			t.Errorf("%v: %v, %v", d, back.D, err)
		}
	}
	if _, err := json.Marshal(config{}); err == nil {
		t.Error("no type was written")
	}
	c := config{dtype.Int8}
	if err := json.Unmarshal([]byte(`{"D":"int9"}`), &c); err == nil || c.D != dtype.Int8 {
		t.Errorf("%v, %v", c.D, err)
	}
	if got := dtype.DType(99).String(); got != "invalid(99)" {
		t.Error(got)
	}
}

func TestOf(t *testing.T) {
	type flags uint8
	for _, c := range []struct{ got, want dtype.DType }{
		{dtype.Of[dtype.F16](), dtype.Float16},
		{dtype.Of[dtype.BF16](), dtype.BFloat16},
		{dtype.Of[dtype.F8E5M2](), dtype.Float8E5M2},
		{dtype.Of[dtype.F8E4M3FN](), dtype.Float8E4M3FN},
		{dtype.Of[uint16](), dtype.Uint16},
		{dtype.Of[celsius](), dtype.Float32},
		{dtype.Of[flags](), dtype.Uint8},
		{dtype.Of[bool](), dtype.Bool},
		{dtype.Of[complex128](), dtype.Complex128},
	} {
		if c.got != c.want {
			t.Errorf("Of: %v, want %v", c.got, c.want)
		}
	}
}
