package holders_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// held returns a recording of blocks that stay, one for each line "PATH:LINE FUNCTION BYTES".
func held(t *testing.T, lines ...string) *holders.View {
	t.Helper()
	tr := &trace.Trace{Streams: []uint64{0}, Metadata: []string{""}, Stacks: &trace.Stacks{}}
	for i, line := range lines {
		var size int64
		where, rest, _ := strings.Cut(line, ":")
		f := frame(where, 0, "")
		if _, err := fmt.Sscan(rest, &f.Line, &f.Name, &size); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		tr.Stacks.Frames = append(tr.Stacks.Frames, f)
		tr.Events = append(tr.Events, trace.Event{
			Action: mem.ActionAlloc, Ptr: driver.Pointer(0x100000 * (i + 1)), Size: size,
			Stack: tr.Stacks.Add([]uint32{uint32(i)}),
		})
	}
	return at(t, history(t, &snapshot.Snapshot{Traces: []*trace.Trace{tr}, Stacks: tr.Stacks}), "peak")
}

// The changes add up to the difference of two recordings by every key, and a recording does not differ from itself.
func TestDifferencesAddUp(t *testing.T) {
	all := []string{"unet.stacks", "resnet.stacks", "streams", "gpt2.oom"}
	views := make([]*holders.View, len(all))
	for i, name := range all {
		_, h := recorded(t, "../testdata/traces/"+name+".pickle.zst")
		views[i] = at(t, h, "peak")
	}
	for i, before := range views {
		for j, after := range views {
			for k := range holders.Key(len(holders.KeyNames())) {
				name := all[i] + " and " + all[j] + " by " + k.String()
				var bytes int64
				var blocks, changed int
				changes := holders.Diff(before, after, k)
				for _, c := range changes {
					bytes += c.Bytes()
					blocks += c.BlocksAfter - c.BlocksBefore
					if c.Before != c.After || c.BlocksBefore != c.BlocksAfter {
						changed++
					}
				}
				testkit.Equal(t, name+": bytes", bytes, after.Bytes-before.Bytes)
				testkit.Equal(t, name+": blocks", blocks, len(after.Blocks)-len(before.Blocks))
				if i == j {
					testkit.Equal(t, name+": changes", changed, 0)
				}
				if !slices.IsSortedFunc(changes, func(a, b holders.Change) int {
					return int(max(b.Bytes(), -b.Bytes()) - max(a.Bytes(), -a.Bytes()))
				}) {
					t.Errorf("%s: not sorted: %v", name, changes)
				}
			}
		}
	}
}

// Lines are followed through edits of the program, and files through directories.
func TestDifferencesFollowTheCode(t *testing.T) {
	for name, c := range map[string]struct {
		before, after []string
		want          string
	}{
		"what grew and what is new": {
			[]string{"/a/train.py:10 forward 100", "/a/train.py:20 step 50", "/a/data.py:5 load 7"},
			[]string{"/a/train.py:10 forward 130", "/a/train.py:20 step 50", "/a/cache.py:3 keep 900"},
			"+900 cache.py:3 keep, +30 train.py:10 forward, -7 data.py:5 load, +0 train.py:20 step",
		},
		"lines were inserted above": {
			[]string{"/a/train.py:10 forward 100", "/a/train.py:11 forward 50"},
			[]string{"/a/train.py:11 forward 100", "/a/train.py:12 forward 70"},
			"+20 train.py:12 forward, +0 train.py:11 forward",
		},
		"lines were inserted above, and one is new": {
			[]string{"/a/train.py:10 forward 100", "/a/train.py:14 forward 50", "/a/train.py:18 forward 20"},
			[]string{
				"/a/train.py:13 forward 100", "/a/train.py:17 forward 50", "/a/train.py:19 forward 5",
				"/a/train.py:21 forward 20",
			},
			"+5 train.py:19 forward, +0 train.py:13 forward, +0 train.py:17 forward, +0 train.py:21 forward",
		},
		"the program is in another directory": {
			[]string{"/home/a/train.py:10 forward 100", "/home/a/models/unet.py:3 up 1"},
			[]string{"/srv/run/train.py:10 forward 100", "/srv/run/models/unet.py:3 up 1", "/srv/lib/z.py:1 z 2"},
			"+2 lib/z.py:1 z, +0 run/train.py:10 forward, +0 run/models/unet.py:3 up",
		},
		"two functions of one name": {
			[]string{"/a/x/net.py:1 f 1", "/a/y/net.py:1 f 2"},
			[]string{"/a/z/net.py:1 f 4", "/a/w/net.py:1 f 8"},
			"+8 w/net.py:1 f, +4 z/net.py:1 f, -2 y/net.py:1 f, -1 x/net.py:1 f",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := held(t, c.before...), held(t, c.after...)
			var got []string
			for _, x := range holders.Diff(before, after) {
				got = append(got, fmt.Sprintf("%+d %s", x.Bytes(), x.Label))
			}
			testkit.Equal(t, "changes", strings.Join(got, ", "), c.want)
			for _, k := range []holders.Key{holders.ByStack, holders.ByFunction, holders.ByModule} {
				var sum int64
				for _, x := range holders.Diff(before, after, k) {
					sum += x.Bytes()
				}
				testkit.Equal(t, k.String(), sum, after.Bytes-before.Bytes)
			}
		})
	}
}

// Steps are aligned by their numbers.
func TestDifferencesOfSteps(t *testing.T) {
	before := history(t, loop(6, 100, 200, 300, 100, 400))
	after := history(t, loop(9, 100, 200, 300, 100, 900))
	changes := holders.DiffSteps(before, after)
	testkit.Equal(t, "steps", len(changes), 6)
	for i, c := range changes {
		testkit.Equal(t, "step", c, holders.StepChange{
			Number: i + 1, PeakBefore: 20<<20 + 1100, PeakAfter: 20<<20 + 1600,
			FinalBefore: 20 << 20, FinalAfter: 20 << 20,
		})
	}
	testkit.Equal(t, "without steps", len(holders.DiffSteps(before, held(t, "/a.py:1 f 1").History())), 0)
}
