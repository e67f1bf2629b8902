package replay_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// sentence makes a script of a grammar: most lines are right, and some free blocks that are not there, request what no
// device has, or have no meaning.
func sentence(in *testkit.Input) string {
	var b strings.Builder
	fmt.Fprintf(&b, "device sim total=%dMiB\n", 8<<in.N(5))
	fmt.Fprintf(&b, "allocator %s\n", testkit.Choose(in, "caching", "bfc", "paged", "direct",
		"caching expandable_segments:True", "caching max_split_size_mb:21,garbage_collection_threshold:0.5", "paged limit=16MiB"))
	block := func() string { return testkit.Choose(in, "a", "b", "c", "layer.0", "_x-1") }
	size := func() string { // "0B" to "254KiB", "7MiB", or an odd one
		switch unit := in.N(16); unit {
		case 0:
			return fmt.Sprint(in.Odd())
		case 1:
			return fmt.Sprintf("%dGiB", in.Byte())
		case 2, 3, 4, 5:
			return fmt.Sprintf("%dMiB", in.N(12))
		default:
			return fmt.Sprintf("%dKiB", in.Byte())
		}
	}
	for steps := 0; in.More() && steps < 60; steps++ {
		switch in.N(16) {
		case 0, 1, 2, 3:
			fmt.Fprintf(&b, "alloc %s %s on=s%d\n", block(), size(), in.N(4))
		case 4, 5:
			fmt.Fprintf(&b, "free %s\n", block())
		case 6:
			fmt.Fprintf(&b, "free %s used=s%d,s%d # why\n", block(), in.N(4), in.N(4))
		case 7:
			fmt.Fprintf(&b, "free %s pending\n", block())
		case 8:
			fmt.Fprintf(&b, "complete %s\n", block())
		case 9:
			fmt.Fprintf(&b, "work s%d\n", in.N(4))
		case 10:
			fmt.Fprintf(&b, "wait s%d s%d\n", in.N(4), in.N(4))
		case 11:
			fmt.Fprintf(&b, "%s\n", testkit.Choose(in, "sync s0", "sync s3", "empty_cache", "segments", "snapshot", "stats", ""))
		case 12:
			fmt.Fprintf(&b, "try %s on=s%d\n", size(), in.N(4))
		case 13:
			fmt.Fprintf(&b, "alloc %s %s pool=0,%d\n", block(), size(), in.N(3))
		case 14:
			fmt.Fprintf(&b, "limit %s\n", size())
		case 15:
			b.Write(in.Bytes(in.N(12)))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func openNamed(dev driver.Device, name, settings string) (mem.Allocator, error) {
	switch name {
	case "bfc":
		return bfc.New(dev, bfc.Config{})
	case "direct":
		return direct.New(dev, direct.Config{}), nil
	case "paged":
		cfg, err := paged.ParseConfig(settings)
		if err != nil {
			return nil, err
		}
		return paged.New(dev, cfg)
	case "caching":
		cfg, _, err := caching.ParseConfig(settings)
		if err != nil {
			return nil, err
		}
		return caching.New(dev, cfg)
	}
	return nil, fmt.Errorf("no allocator %q", name)
}

// outcome runs a script on a device of its own. It ends the test if the run leaves memory behind.
func outcome(t *testing.T, s *trace.Script) (string, error) {
	t.Helper()
	var dev *sim.Device
	r := replay.NewScriptRun(replay.ScriptOptions{NewAllocator: openNamed, OpenDevice: func(spec string) (driver.Device, error) {
		var total int64
		if _, err := fmt.Sscanf(spec, "sim:total=%dMiB", &total); err != nil || total > 1<<10 {
			return nil, fmt.Errorf("no device %q", spec)
		}
		dev = sim.New(sim.Options{Total: total << 20, Unchecked: true})
		return dev, nil
	}})
	out, err := r.Run(s)
	testkit.Must(t, r.Close())
	return out, err
}

// A script that can be read is written and read without loss, and gives the same output whenever it is run. No two live
// blocks overlap in the output. Errors name the line of a command.
func FuzzScript(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 6, 9, 0, 0, 1, 6, 5, 1, 4, 0, 0, 2, 5, 3, 1, 11, 4})
	f.Add([]byte{2, 2, 0, 0, 2, 5, 1, 7, 0, 0, 1, 2, 5, 2, 8, 0, 6, 1, 1, 2, 9, 1, 11, 0})
	f.Add([]byte{1, 1, 0, 0, 1, 3, 0, 12, 0, 3, 1, 14, 9, 1, 11, 5})
	f.Fuzz(func(t *testing.T, input []byte) {
		text := sentence(&testkit.Input{Rest: input})
		var s *trace.Script
		var err error
		testkit.AllocatesAtMost(t, len(text), 1000, 1<<20, func() { s, err = trace.ParseScript(text) })
		var wrong *trace.ScriptError
		if err != nil {
			if !errors.As(err, &wrong) || wrong.Line < 3 || wrong.Line > strings.Count(text, "\n") {
				t.Fatalf("%s\n%v", text, err)
			}
			return
		}
		if again, err := trace.ParseScript(s.String()); err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%s\nis written as\n%s\n%v", text, s, err)
		}
		var out string
		// An allocator's tables have a place for each stream, and that of a pending free is number 65,536.
		testkit.AllocatesAtMost(t, len(text), 10_000, 32<<20, func() { out, err = outcome(t, s) })
		if err != nil && (!errors.As(err, &wrong) || wrong.Line < 1 || wrong.Line > len(s.Commands)) {
			t.Fatalf("%s\n%v", text, err)
		}
		if again, failed := outcome(t, s); again != out || fmt.Sprint(failed) != fmt.Sprint(err) {
			t.Fatalf("%s\nprints\n%s%v\nand then\n%s%v", text, out, err, again, failed)
		}
		if err == nil {
			checkApart(t, s, out)
		}
	})
}

// checkApart follows the blocks of a run by its output, and ends the test if two that are live overlap. The memory of a
// block with a pending free may be another's, which waits.
func checkApart(t *testing.T, s *trace.Script, out string) {
	t.Helper()
	type extent struct{ begin, end int64 }
	live := map[string]extent{}
	lines := strings.Split(out, "\n")
	for i := range s.Commands {
		c := &s.Commands[i]
		switch {
		case c.Verb == trace.VerbFree:
			delete(live, c.Name)
		case c.Verb == trace.VerbDevice, c.Verb == trace.VerbAllocator:
			clear(live)
		case c.Verb == trace.VerbAlloc:
			for !strings.HasPrefix(lines[0], c.Name+" = ") {
				lines = lines[1:]
			}
			var at int64
			if n, _ := fmt.Sscanf(lines[0][len(c.Name):], " = 0x%x+", &at); n == 1 {
				end := at + max(c.Size, 1)
				for name, x := range live {
					if at < x.end && end > x.begin {
						t.Fatalf("%s\n%s\nline %d: %s overlaps %s", s, out, i+1, c.Name, name)
					}
				}
				live[c.Name] = extent{at, end}
			}
			lines = lines[1:]
		}
	}
}
