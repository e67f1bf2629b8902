package main

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Info prints the same for a file, which it reads as a stream, and for standard input, which it reads whole: for
// recordings with and without failures, oversized and contradictory entries, and unknown actions.
func TestInfoOfStreams(t *testing.T) {
	paths, err := filepath.Glob(traces + "*.pickle.zst")
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	bad := append(smallHistory(), entry("free_completed", base, 4*mib, 6), entry("weird", 0, 0, 6))
	oversized := smallHistory()
	oversized[1] = entry("alloc", base, 1<<62, 2)
	paths = append(paths, smallSnapshot(t, "", bad), smallSnapshot(t, "", oversized), smallSnapshot(t, "", nil))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		streamed, whole := ashlar(t, nil, "info", path), ashlar(t, b, "info", "-")
		_, after, _ := strings.Cut(streamed.out, ": a memory snapshot")
		if _, want, _ := strings.Cut(whole.out, ": a memory snapshot"); after != want || streamed.code != whole.code {
			t.Errorf("%s: exit code %d\n%s\nwant %d\n%s", path, streamed.code, streamed.out, whole.code, whole.out)
		}
	}
}

// Info keeps no events of a recording of one device.
func TestInfoReadsStreams(t *testing.T) {
	p := newProgress(io.Discard, "")
	defer p.end()
	in, err := readSurveyed(sample("gpt2"), nil, p)
	if err != nil || len(in.surveys) != 1 || in.snapshot.Traces[0].Len() != 0 {
		t.Errorf("%v: %d surveys, %d events", err, len(in.surveys), in.snapshot.Traces[0].Len())
	}
}

// The largest sizes and their counts do not depend on the order in which sizes appear.
func TestBiggestSizes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		var b biggest
		all := map[allocation]int{}
		for range random.IntN(500) {
			a := allocation{random.Int64N(40), 1}
			all[a]++
			if a.size >= b.least {
				b.count(a)
			}
		}
		sizes := []int64{}
		for a := range all {
			sizes = append(sizes, a.size)
		}
		slices.Sort(sizes)
		sizes = sizes[max(len(sizes)-maxBiggest, 0):]
		if !slices.Equal(b.sizes, sizes) || len(b.counts) != len(sizes) {
			t.Fatalf("sizes %d with %d counts, want %d", b.sizes, len(b.counts), sizes)
		}
		for a, n := range b.counts {
			if n != all[a] {
				t.Fatalf("size %d: %d, want %d", a.size, n, all[a])
			}
		}
	}
}

// However many entries there are, the chart is that of all of them, but for entries near the edge of a column.
func TestMemoryOverTimeIsBounded(t *testing.T) {
	const n = 5 * maxMoments
	random := rand.New(rand.NewPCG(1, 1))
	for name, step := range map[string]int64{"no times": 0, "times": 50} {
		var m memoryOverTime
		us, peak := int64(1_000_000), sums{}
		d := summary{Entries: n, StartUS: us, EndUS: us}
		var want chart
		for i := range n {
			us += random.Int64N(step + 1)
			s := sums{int64(i) / 1000 * 1000, random.Int64N(1000)}
			peak.atLeast(s)
			m.add(us, s)
		}
		d.EndUS, d.Peaks.Requested, d.Peaks.Reserved = us, peak.requested, peak.reserved
		if len(m.moments) > maxMoments || m.entries != n {
			t.Errorf("%s: %d moments of %d entries", name, len(m.moments), m.entries)
		}
		c := newChart(&d, &m)
		for i := range want.requested {
			want.requested[i] = int64(n) * int64(i+1) / chartColumns
			if off := c.requested[i] - want.requested[i]; off > n/1000 || off < -n/1000 || c.reserved[i] < 990 {
				t.Errorf("%s: column %d has %d and %d, want %d", name, i, c.requested[i], c.reserved[i], want.requested[i])
			}
		}
	}
}
