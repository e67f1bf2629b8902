package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/pickle"
)

// tooMuch is how many bytes a command may allocate for a file or a text of a few lines.
const tooMuch = 256 << 20

// saysRange matches the parts of errors that give a number's range, or that say that no device has so much memory.
var saysRange = regexp.MustCompile("want|expected|not a multiple of|out of memory")

// taken runs a command that a number was given to. It must not panic, and end as commands end, with little memory. What
// it refuses as wrong usage names the number and says what it wants.
func taken(t *testing.T, number string, args ...string) outcome {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("ashlar %q panicked: %v", args, r)
		}
	}()
	before := testkit.Allocated()
	got := ashlar(t, nil, args...)
	if n := testkit.Allocated() - before; n > tooMuch {
		t.Errorf("ashlar %q allocated %d bytes", args, n)
	}
	switch {
	case got.code == exitOK || got.code == exitDiffers || got.code == exitNoRoom:
	case got.code != exitUsage && got.code != exitInput:
		t.Errorf("ashlar %q: exit code %d", args, got.code)
	case got.code == exitUsage && (!strings.Contains(got.err, number) || !saysRange.MatchString(got.err)):
		t.Errorf("ashlar %q: the error names neither the number nor what is wanted: %s", args, got.err)
	}
	return got
}

// negative matches a negative number of bytes, entries or seconds.
var negative = regexp.MustCompile(`(?m)(^|[ (])-[0-9]`)

const smallScript = "device sim total=1GiB\nalloc a 3MiB\nalloc b 20KiB on=s1\nfree a\nalloc c 2MiB\n"

func TestDefect02_NumbersOfFlags(t *testing.T) {
	script := file(t, "small.script", smallScript)
	trace := sample("streams")
	plan := filepath.Join(t.TempDir(), "plan")
	for _, n := range testkit.Numbers() {
		for _, args := range [][]string{
			{"replay", "--capacity=" + n, script},
			{"replay", "--smallest", "--capacity=" + n, script},
			{"replay", "--limit=" + n, "-a", "caching", "-a", "arena", "-a", "bfc", "-a", "paged", "-a", "planned", "-a", "direct", script},
			{"tune", "--capacity=" + n, script},
			{"tune", "--limit=" + n, script},
			{"tune", "--budget=" + n + "%", script},
			{"tune", "--tries=1", "--keep=large_segment_size_mb:" + n, script},
			{"replay", "--limit=" + n + "x", "-a", "caching", "-a", "arena", script},
			{"verify", "--capacity=" + n, trace},
			{"verify", "--limit=" + n, trace},
			{"verify", "--settings=max_split_size_mb:" + n, trace},
			{"verify", "--settings=roundup_power2_divisions:[256:" + n + ",>:" + n + "]", trace},
			{"replay", "--device=sim:total=" + n, script},
			{"replay", "--device=sim:total=1GiB,granularity=" + n, "-a", "paged", script},
			{"plan", "--device=sim:total=" + n, "-o", plan, script},
			{"pack", "--time=0s", "--align=" + n, script},
			{"pack", "--time=0s", "--seed=" + n, script},
			{"plan", "--room=" + n, "-o", plan, script},
			{"plan", "--ordinal=" + n, "-o", plan, script},
		} {
			os.Remove(plan)
			taken(t, n, args...)
		}
		taken(t, "", "pack", "--time="+n+"ns", "--align=1", script)
	}
	for _, c := range []struct{ flag, says string }{
		{"--capacity=32769TiB", "--capacity: size \"32769TiB\": want 1 byte to 32768TiB"},
		{"--capacity=9223372036854775808", "too large"},
		{"--limit=32769TiB", "--limit: size \"32769TiB\": want 1 byte to 32768TiB"},
	} {
		if got := ashlar(t, nil, "replay", c.flag, script); got.code != exitUsage || !strings.Contains(got.err, c.says) {
			t.Errorf("%s: exit code %d: %s", c.flag, got.code, got.err)
		}
	}
	ok(t, "replay", "--capacity=32768TiB", "-a", "caching", "-a", "arena", "-a", "bfc", "-a", "paged", script)
}

func TestDefect02_NumbersOfScripts(t *testing.T) {
	for _, n := range testkit.Numbers() {
		for _, device := range []string{"total=" + n, "granularity=" + n, "seed=" + n} {
			path := file(t, "device.script", "device sim "+device+"\nalloc a 3MiB\n")
			taken(t, n, "replay", path)
		}
		for _, line := range []string{
			"alloc c " + n, "try " + n, "alloc c 1KiB on=s" + n, "alloc c 1KiB pool=" + n + ",1", "alloc c 1KiB pool=1," + n,
			"free b used=s" + n, "limit " + n, "work s" + n, "wait s1 s" + n,
		} {
			path := file(t, "line.script", smallScript+line+"\n")
			taken(t, n, "replay", "-a", "caching", "-a", "arena", "-a", "bfc", "-a", "paged", "-a", "planned", "-a", "direct", path)
			taken(t, n, "pack", "--time=0s", path)
			taken(t, n, "plan", "-o", filepath.Join(t.TempDir(), "plan"), path)
		}
	}
	path := file(t, "huge.script", "alloc a 9223372036854775807\n")
	got := ashlar(t, nil, "plan", "-o", filepath.Join(t.TempDir(), "plan"), path)
	if want := "request 0 of stream 0 is for 9223372036854775807 bytes, want at most 70368744177664"; !strings.Contains(got.err, want) {
		t.Errorf("a plan of a huge block: %s", got.err)
	}
	path = file(t, "large.script", "device sim total=999999TiB\nalloc a 3MiB\n")
	if got := ashlar(t, nil, "replay", path); got.code != exitInput ||
		!strings.Contains(got.err, `script:1:1: device sim: total "999999TiB": want 1 byte to 32768TiB`) {
		t.Errorf("a device of 999999TiB: exit code %d: %s", got.code, got.err)
	}
}

// allocatorSettings are the numeric settings of each allocator that replay knows.
var allocatorSettings = []string{
	"arena:size=%s", "arena:round=%s", "arena:limit=%s", "arena:page=%s", "arena:bounce=%s", "arena:size=%s,page=2MiB",
	"bfc:limit=%s", "bfc:initial=%s", "bfc:fragmentation=%s", "bfc:retry=%s", "bfc:retry=%ss", "bfc:virtual=on,limit=%s", "bfc:growth=off,limit=%s",
	"direct:limit=%s",
	"paged:limit=%s", "paged:page=%s", "paged:keep=%s", "paged:spare=%s", "paged:addresses=%s",
	"caching:max_split_size_mb:%s", "caching:max_non_split_rounding_mb:%s", "caching:large_segment_size_mb:%s",
	"caching:garbage_collection_threshold:%s", "caching:roundup_power2_divisions:%s",
	"caching:roundup_power2_divisions:[256:%s]", "caching:roundup_power2_divisions:[%s:4]",
	"caching:roundup_power2_divisions:[>:%s]", "caching:limit:%s", "caching:per_process_memory_fraction:%s",
	"caching:expandable_segments:True,expandable_segments_reserve:%s", "caching:pinned_reserve_segment_size_mb:%s",
	"caching:pinned_num_register_threads:%s", "caching:pinned_max_round_threshold_mb:%s",
	"caching:pinned_max_cached_size_mb:%s",
}

func TestDefect02_NumbersOfAllocatorSettings(t *testing.T) {
	script := file(t, "small.script", smallScript)
	for _, form := range allocatorSettings {
		for _, n := range append([]string{"0.5", "1e308", "1e-320", "NaN", "Inf", "-0.0"}, testkit.Numbers()...) {
			taken(t, n, "replay", "-a", fmt.Sprintf(form, n), script)
		}
	}
}

func TestDefect02_NumbersOfDeviceSettings(t *testing.T) {
	array := sampleArray(t)
	for _, form := range []string{
		"sim:total=%s", "sim:granularity=%s", "sim:alignment=%s", "sim:base=%s", "sim:seed=%s", "sim:pinned=%s",
		"sim:ordinal=%s", "sim:total=1GiB,granularity=%s", "sim:base=%s,total=1GiB",
		"host:total=%s", "host:granularity=%s", "host:ordinal=%s", "host:node=%s",
	} {
		for _, n := range testkit.Numbers() {
			taken(t, n, "tensors", "--device="+fmt.Sprintf(form, n), array)
		}
	}
}

// sampleArray is a .npy file of twelve float32.
func sampleArray(t *testing.T) string {
	t.Helper()
	return file(t, "a.npy", npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", 48))
}

func npyFile(header string, data int) string {
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	return "\x93NUMPY\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(header)))) + header +
		strings.Repeat("\x00", data)
}

func TestDefect02_NumbersOfArrays(t *testing.T) {
	testkit.Replaced("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", func(n, header string) {
		path := file(t, "a.npy", npyFile(header, 48))
		taken(t, n, "tensors", path)
		taken(t, n, "tensors", "--print", "", path)
		taken(t, n, "tensors", "--device", "sim", path)
	})
	for _, length := range []uint16{0, 1, 54, math.MaxUint16 - 1, math.MaxUint16} {
		text := []byte(npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", 48))
		binary.LittleEndian.PutUint16(text[8:], length)
		taken(t, "", "tensors", file(t, "a.npy", string(text)))
	}
}

func TestDefect02_NumbersOfTensors(t *testing.T) {
	header := `{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"I64","shape":[],"data_offsets":[24,32]}}`
	at := func(length uint64, header string) string {
		return string(binary.LittleEndian.AppendUint64(nil, length)) + header + strings.Repeat("\x00", 32)
	}
	testkit.Replaced(header, func(n, header string) {
		path := file(t, "a.safetensors", at(uint64(len(header)), header))
		taken(t, n, "tensors", path)
		taken(t, n, "tensors", "--device", "sim", path)
		taken(t, n, "tensors", "--print", "a", path)
	})
	for _, length := range []uint64{
		0, 1, uint64(len(header)) - 1, uint64(len(header)) + 1, 100_000_000, 100_000_001, 1 << 32, math.MaxInt64, 1 << 63,
		math.MaxUint64 - 7, math.MaxUint64,
	} {
		taken(t, "", "tensors", file(t, "a.safetensors", at(length, header)))
	}
	index := `{"metadata":{"total_size":32},"weight_map":{"a":"a.safetensors","b":"a.safetensors"}}`
	testkit.Replaced(index, func(n, index string) {
		dir := t.TempDir()
		for name, content := range map[string]string{"a.safetensors": at(uint64(len(header)), header), "model.safetensors.index.json": index} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		taken(t, n, "tensors", dir)
	})
}

func TestDefect02_NumbersOfTables(t *testing.T) {
	testkit.Replaced("id,lower,upper,size\n0,3,9,4\n1,4,10,5\n", func(n, table string) {
		taken(t, n, "pack", "--time=0s", file(t, "t.csv", table))
		taken(t, n, "pack", "--time=1ms", file(t, "t.csv", table))
	})
}

func TestDefect02_NumbersOfPlans(t *testing.T) {
	script := file(t, "small.script", smallScript)
	plan := filepath.Join(t.TempDir(), "small.plan")
	ok(t, "plan", "--room=10", "--device=sim", "-o", plan, script)
	content, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content[:bytes.LastIndex(content, []byte("sum "))])
	table := crc64.MakeTable(crc64.ISO)
	testkit.Replaced(text, func(n, text string) {
		path := file(t, "changed.plan", fmt.Sprintf("%ssum %016x\n", text, crc64.Checksum([]byte(text), table)))
		taken(t, "", "replay", "-a", "planned:"+path, script)
	})
}

func TestDefect02_NumbersOfCosts(t *testing.T) {
	model := `{"about": "x", "calls": {"Alloc": [{"size": 0, "ns": 100}, {"size": 1048576, "ns": 200}, {"size": 2097152, "ns": 300}],
"VirtualMemory.Map": [{"size": 2097152, "ns": 3000}], "Stream.CopyIn": [{"size": 0, "ns": 10}, {"size": 5000, "ns": 3600000000000}]},
"map_next_ns": 7, "unmap_next_ns": 8}`
	array := sampleArray(t)
	testkit.Replaced(model, func(n, model string) {
		path := file(t, "cost.json", model)
		taken(t, "", "tensors", "--device=sim:cost="+path, array)
	})
}

// A leaf is a number in a snapshot: what changes it.
type leaf struct {
	path string
	set  func(any)
}

// leaves finds the numbers in v, which set replaces, in the order of their keys.
func leaves(path string, v any, set func(any)) []leaf {
	var all []leaf
	switch v := v.(type) {
	case int64, float64:
		return []leaf{{path, set}}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, leaves(path+"."+key, v[key], func(to any) { v[key] = to })...)
		}
	case []any:
		for i, item := range v {
			all = append(all, leaves(path+"."+strconv.Itoa(i), item, func(to any) { v[i] = to })...)
		}
	}
	return all
}

func pickled(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	w := pickle.NewWriter(&b)
	w.Value(v)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// plainSnapshot is a short snapshot as maps and lists, with everything in it that has a number.
func plainSnapshot() map[string]any {
	const start, segment, other = 1790000000000000, 0x7f0000000000, 0x7f1000000000
	var trace []any
	entry := func(action, address string, addr, size int64) {
		trace = append(trace, map[string]any{
			"action": action, address: addr, "size": size, "stream": int64(0), "time_us": start + int64(len(trace)), "pool_id": []any{int64(0), int64(0)},
			"frames": []any{map[string]any{"name": "f", "filename": "x.py", "line": int64(7)}},
		})
	}
	entry("segment_alloc", "addr", segment, 2<<20)
	entry("alloc", "addr", segment, 1<<19)
	entry("alloc", "addr", segment+1<<19, 4096)
	entry("free_requested", "addr", segment, 1<<19)
	entry("free_completed", "addr", segment, 1<<19)
	entry("oom", "device_free", 1<<20, 1<<30)
	entry("segment_map", "addr", other, 2<<20)
	entry("segment_unmap", "addr", other, 2<<20)
	entry("snapshot", "addr", 0, 0)
	block := func(addr, size, requested int64, state string) any {
		return map[string]any{"address": addr, "size": size, "requested_size": requested, "state": state}
	}
	return map[string]any{
		"device_traces": []any{trace},
		"segments": []any{map[string]any{
			"device": int64(0), "address": int64(segment), "total_size": int64(2 << 20), "allocated_size": int64(4096), "active_size": int64(4096),
			"requested_size": int64(4096), "stream": int64(0), "segment_type": "small", "segment_pool_id": []any{int64(0), int64(0)},
			"is_expandable": false, "blocks": []any{
				block(segment, 1<<19, 0, "inactive"), block(segment+1<<19, 4096, 4096, "active_allocated"),
				block(segment+1<<19+4096, 2<<20-1<<19-4096, 0, "inactive"),
			},
		}},
		"external_annotations": []any{
			map[string]any{"stage": "START", "name": "x", "device": int64(0), "time_us": int64(start)},
			map[string]any{"stage": "END", "name": "x", "device": int64(0), "time_us": int64(start + 5)},
		},
		"allocator_settings": map[string]any{
			"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": int64(-1), "garbage_collection_threshold": 0.5,
			"roundup_power2_divisions": map[string]any{"1": int64(0), "2": int64(4)}, "pinned_num_register_threads": int64(1),
		},
	}
}

func TestDefect02_NumbersOfSnapshots(t *testing.T) {
	numbers := []any{
		int64(-1), int64(1) << 32, int64(1)<<60 - 1, int64(math.MaxInt64), int64(math.MinInt64), uint64(math.MaxUint64), math.NaN(),
	}
	all := func(s any) []leaf { return leaves("", s, nil) }
	count := len(all(plainSnapshot()))
	if count < 60 {
		t.Fatalf("%d numbers in the snapshot", count)
	}
	for i := range count {
		for _, n := range numbers {
			s := plainSnapshot()
			changed := all(s)[i]
			changed.set(n)
			path := file(t, "changed.pickle", pickled(t, s))
			commands := [][]string{
				{"info"}, {"verify"}, {"export", "--to", "json"}, {"export", "--to", "pprof"}, {"export", "--to", "perfetto"},
			}
			if !strings.HasPrefix(changed.path, ".segments") {
				commands = append(commands, []string{"replay", "-a", "caching", "-a", "paged"}, []string{"pack", "--time=0s"})
			}
			for _, args := range commands {
				got := taken(t, "", append(args, path)...)
				if args[0] == "info" && negative.MatchString(got.out) {
					t.Errorf("info shows a negative number: %s", got.out)
				}
				if t.Failed() {
					t.Fatalf("with %v in the place of %s: %s", n, changed.path, got.err)
				}
			}
		}
	}
}
