package main

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/estimate"
	"github.com/ashlar-go/ashlar/internal/golden"
)

// checkpointOf makes the checkpoints of models of estimate/testdata, with holes in place of the data. Each is in the
// folder of its name, in a new current directory.
func checkpointOf(t *testing.T, names ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		from := "../../estimate/testdata/" + name
		header, err := os.ReadFile(from + ".header.json")
		if err != nil {
			t.Fatal(err)
		}
		config, err := os.ReadFile(from + ".config.json")
		if err != nil {
			t.Fatal(err)
		}
		writeCheckpoint(t, filepath.Join(dir, name), header, config)
	}
	t.Chdir(dir)
}

func writeCheckpoint(t *testing.T, dir string, header, config []byte) {
	t.Helper()
	var tensors map[string]struct {
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(header, &tensors); err != nil {
		t.Fatal(err)
	}
	size := int64(8 + len(header))
	end := size
	for _, x := range tensors {
		end = max(end, size+x.Offsets[1])
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	start := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	if err := os.WriteFile(path, start, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, end); err != nil {
		t.Fatal(err)
	}
	if config != nil {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The text output equals the reviewed golden files.
func TestEstimateOutput(t *testing.T) {
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	checkpointOf(t, "gpt2", "llama")
	for name, args := range map[string][]string{
		"estimate-train": {
			"estimate", "--train", "--batch", "12", "--dtype", "amp", "--limit", "16GiB", "gpt2/model.safetensors",
		},
		"estimate-inference": {"estimate", "--batch", "8", "--new", "256", "--dtype", "bf16", "llama"},
		"help-estimate":      {"estimate", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			out := ok(t, args...)
			golden.File(t, filepath.Join(here, name+".txt"), out)
			for line := range strings.Lines(out) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > pageWidth {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

// Programs read these keys, and the figures at the peak add up to it.
func TestEstimateJSON(t *testing.T) {
	checkpointOf(t, "gpt2")
	args := []string{"estimate", "--json", "--train", "--sequence", "512", "--batch", "4", "gpt2"}
	var line estimateLine
	if err := json.Unmarshal([]byte(ok(t, args...)), &line); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, f := range line.Figures {
		sum += f.AtPeak
		if f.Formula == "" || f.Bytes <= 0 {
			t.Errorf("%+v", f)
		}
	}
	const measured = 4430409304 // estimate/testdata/measured.jsonl, with fused kernels
	if line.Parameters != 124439808 || sum != line.RequestedPeak || line.RequestedPeak < measured*99/100 ||
		line.RequestedPeak > measured*101/100 ||
		line.PeakPhase != "backward pass" || line.DType != "fp32" || len(line.Allocators) != 3 || line.Limit != nil {
		t.Errorf("%+v", line)
	}
	for _, a := range line.Allocators {
		if a.ReservedPeak < line.RequestedPeak || a.Fits != nil || a.LargestBatch != nil {
			t.Errorf("%+v", a)
		}
	}
}

func TestEstimateExitCodes(t *testing.T) {
	checkpointOf(t, "llama")
	writeCheckpoint(t, "wrong", []byte(`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`), []byte("{"))
	writeCheckpoint(t, "plain", []byte(`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`), nil)
	text := file(t, "model.txt", `{"a": 1}, and text`)
	for _, c := range []struct {
		args []string
		code int
		text string // in the output or the error
	}{
		{[]string{"--limit", "100MiB", "llama"}, exitNoRoom, "no             0"},
		{[]string{"plain"}, exitOK, "activations are not estimated"},
		{[]string{"wrong"}, exitInput, "config.json: unexpected end of JSON input"},
		{[]string{"nothing", "plain"}, exitInput, "4 parameters"},
		{[]string{"nothing"}, exitInput, "ashlar: nothing: no such file or directory\n"},
		{[]string{text}, exitInput, "ashlar: " + text + `: not a safetensors file: it begins with "{\"a\": 1}`},
		{[]string{"--batch", "0", "no/such"}, exitUsage, "ashlar: --batch 0: want 1 to 1073741824\nRun \"ashlar --help\""},
		{[]string{"--sequence", "100000000000", "llama"}, exitUsage, "--sequence 100000000000: want 1 to"},
		{[]string{"--accumulate", "2000", "llama"}, exitUsage, "--accumulate 2000: want 1 to 1024"},
		{[]string{"--new=-1", "llama"}, exitUsage, "--new -1: want 0 to"},
		{[]string{"--heads=-1", "llama"}, exitUsage, "--heads -1: want 0 to"},
		{[]string{"--workspace", "2GiB", "llama"}, exitUsage, "--workspace 2147483648: want 1 to"},
		{[]string{"--dropout", "2", "llama"}, exitUsage, "--dropout 2: want 0 to 1"},
		{[]string{"--dropout=-0.5", "llama"}, exitUsage, "--dropout -0.5: want 0 to 1"},
		{[]string{"--dropout", "NaN", "llama"}, exitUsage, "--dropout NaN: want 0 to 1"},
		{[]string{"--dtype", "int4", "llama"}, exitUsage, "--dtype"},
		{[]string{"--optimizer", "lion", "llama"}, exitUsage, strings.Join(estimate.Optimizers(), ", ")},
	} {
		got := ashlar(t, nil, append([]string{"estimate"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.text) {
			t.Errorf("%q: exit code %d, %s%s\nwant %d and %q", c.args, got.code, got.out, got.err, c.code, c.text)
		}
	}
}
