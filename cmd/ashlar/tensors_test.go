package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/tensor/npy"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

const (
	checkpoints = "../../tensor/safetensors/testdata/python/"
	arrays      = "../../tensor/npy/testdata/python/"
)

// The text output equals the reviewed golden files.
func TestTensorsOutput(t *testing.T) {
	for name, args := range map[string][]string{
		"tensors": {
			"tensors", checkpoints + "types.safetensors", checkpoints + "sharded", checkpoints + "metadata-many.safetensors", checkpoints + "names.safetensors",
			checkpoints + "nothing.safetensors", arrays + "stored.npz", arrays + "float32-big.npy",
		},
		"tensors-print": {"tensors", "--print", "layer.3.weight", "--print", "bias", checkpoints + "sharded"},
		"help-tensors":  {"tensors", "--help"},
	} {
		t.Run(name, func(t *testing.T) { golden.File(t, "testdata/"+name+".txt", ok(t, args...)) })
	}
}

func tensorFiles(t *testing.T, out string) []tensorFileLine {
	t.Helper()
	var lines []tensorFileLine
	for line := range strings.Lines(out) {
		var l tensorFileLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func TestTensorsJSON(t *testing.T) {
	lines := tensorFiles(t, ok(t, "tensors", "--json", checkpoints+"sharded/model.safetensors.index.json", arrays+"int16.npy"))
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	l := lines[0]
	if l.Format != "safetensors" || len(l.Tensors) != 6 || l.Size != 5*400+6 || l.Device != "" || l.Seconds != nil {
		t.Errorf("%+v", l)
	}
	for _, x := range l.Tensors {
		if !strings.HasPrefix(x.File, "model-0000") || (x.Name == "bias") != (x.DType == "BF16") {
			t.Errorf("%+v", x)
		}
	}
	if l := lines[1]; l.Format != "npy" || len(l.Tensors) != 1 || l.Tensors[0].DType != "<i2" || l.Tensors[0].Name != "" || l.Size != 12 {
		t.Errorf("%+v", l)
	}
	has(t, ok(t, "tensors", "--json", checkpoints+"nothing.safetensors"), `"tensors":[]`)
	has(t, ok(t, "tensors", "--json", "--print", "bias", checkpoints+"sharded"), `"name":"bias","text":"tensor([1., 1., 1.], dtype=torch.bfloat16)"`)
}

// Loads are timed: the clock of tests moves on by a millisecond.
func TestTensorsLoadedToADevice(t *testing.T) {
	for _, device := range []string{"host", "sim", "sim:total=1GiB"} {
		lines := tensorFiles(t, ok(t, "tensors", "--json", "--device", device, checkpoints+"numpy.safetensors", arrays+"deflated.npz", arrays+"int64.npy"))
		for _, l := range lines {
			if l.Device != device || l.Seconds == nil || *l.Seconds != 0.001 || *l.Rate != float64(l.Size)/1e9/0.001 {
				t.Errorf("%s: %+v", device, l)
			}
		}
		has(t, ok(t, "tensors", "--device", device, checkpoints+"numpy.safetensors"), "loaded to "+device+" in 0.00s, 0.00 GB/s")
	}
	has(t, ok(t, "tensors", "--device", "sim", "--print", "w", checkpoints+"metadata.safetensors"), "tensor([[1., 0.],", "[0., 1.]], device='sim')")
}

// Files without a known ending are known by how they begin.
func TestTensorsOfFilesByContent(t *testing.T) {
	for from, format := range map[string]string{arrays + "scalar.npy": "npy", arrays + "stored.npz": "npz", checkpoints + "shapes.safetensors": "safetensors"} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if l := tensorFiles(t, ok(t, "tensors", "--json", file(t, "blob", string(b)))); l[0].Format != format {
			t.Errorf("%s is taken for %s", from, l[0].Format)
		}
	}
}

func TestTensorsErrors(t *testing.T) {
	bad := file(t, "bad.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00[]")
	text, array := file(t, "text.safetensors", "# A file of another kind\n"), file(t, "text.npy", "# A file of another kind\n")
	good := checkpoints + "metadata.safetensors"
	for name, c := range map[string]struct {
		args []string
		code int
		err  string
	}{
		"no file":        {nil, exitUsage, "<file>"},
		"missing":        {[]string{"no/such.safetensors"}, exitInput, "ashlar: no/such.safetensors: no such file"},
		"missing array":  {[]string{"no/such.npy"}, exitInput, "ashlar: no/such.npy: no such file"},
		"bad":            {[]string{bad}, exitInput, "ashlar: " + bad + ": the header does not begin with '{'"},
		"bad array":      {[]string{array}, exitInput, "ashlar: " + array + ": it begins with "},
		"text":           {[]string{text}, exitInput, "ashlar: " + text + `: not a safetensors file: it begins with "# A file"`},
		"bad among good": {[]string{bad, good}, exitInput, "bad.safetensors"},
		"no such tensor": {[]string{"--print", "x", good}, exitInput, `no such tensor: "x"`},
		"no such array":  {[]string{"--print", "x", arrays + "stored.npz"}, exitInput, `no such array: "x"`},
		"a name of npy":  {[]string{"--print", "x", arrays + "int8.npy"}, exitInput, `has no name: --print ""`},
		"objects":        {[]string{arrays + "object.npy"}, exitInput, "Python objects"},
		"unknown type":   {[]string{"--device", "host", checkpoints + "types.safetensors"}, exitInput, "F8_E8M0"},
		"no such driver": {[]string{"--device", "gpu", good}, exitUsage, "gpu"},
		"bad settings":   {[]string{"--device", "sim:total=x", good}, exitUsage, "total"},
		"no card":        {[]string{"--device", "broken:0", good}, exitInput, "no card"},
		"no room":        {[]string{"--device", "host:total=1", good}, exitNoRoom, "tensor \"w\""},
		"no directory":   {[]string{t.TempDir()}, exitInput, "no file *.safetensors"},
	} {
		got := ashlar(t, nil, append([]string{"tensors"}, c.args...)...)
		if got.code != c.code || !strings.Contains(strings.Join(strings.Fields(got.err), " "), c.err) {
			t.Errorf("%s: exit code %d, %s", name, got.code, got.err)
		}
		if (name == "bad among good") != strings.Contains(got.out, "format: pt") {
			t.Errorf("%s: printed %q", name, got.out)
		}
	}
	// Programs must also be able to distinguish the libraries' errors.
	if _, err := openTensors(bad); !errors.Is(err, safetensors.ErrFormat) {
		t.Errorf("%v", err)
	}
	if _, err := openTensors(filepath.Join(arrays, "expected.json")); !errors.Is(err, safetensors.ErrFormat) || errors.Is(err, npy.ErrFormat) {
		t.Errorf("%v", err)
	}
}
