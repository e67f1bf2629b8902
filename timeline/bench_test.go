package timeline_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/timeline"
)

// What a span costs that is above the level.
func BenchmarkOff(b *testing.B) {
	d := sim.New(sim.Options{})
	r := timeline.New(d, timeline.Options{Level: timeline.Off})
	lane, s := r.Lane("main"), d.DefaultStream()
	b.ReportAllocs()
	for b.Loop() {
		lane.Begin(s, "step", 0, 1e9).End(s)
	}
}

// What a span costs that is recorded, on a device whose stamps are cheap: the host.
func BenchmarkSpan(b *testing.B) {
	d, err := host.Open(host.Options{Total: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	var s driver.Stream
	if s, err = d.NewStream(driver.StreamOptions{}); err != nil {
		b.Fatal(err)
	}
	r := timeline.New(d, timeline.Options{})
	lane := r.Lane("main")
	b.ReportAllocs()
	for b.Loop() {
		lane.Begin(s, "step", 0, 1e9).End(s)
	}
	b.StopTimer()
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
}

// What it costs to read and to print ten thousand spans.
func BenchmarkRead(b *testing.B)     { benchmarkForms(b, "read") }
func BenchmarkTree(b *testing.B)     { benchmarkForms(b, "tree") }
func BenchmarkTimeline(b *testing.B) { benchmarkForms(b, "timeline") }
func BenchmarkChrome(b *testing.B)   { benchmarkForms(b, "chrome") }

// nowhere counts what is written.
type nowhere struct{ size int64 }

func (w *nowhere) Write(p []byte) (int, error) { w.size += int64(len(p)); return len(p), nil }

func benchmarkForms(b *testing.B, what string) {
	d := sim.New(sim.Options{})
	s := d.DefaultStream()
	r := timeline.New(d, timeline.Options{Memory: func() int64 { return 1 << 20 }})
	lane := r.Lane("main")
	record := func() {
		r.Reset()
		for range 100 {
			step := lane.Begin(s, "step", 0, 1e9)
			for range 99 {
				lane.Begin(s, "layer", 0, 1e9).End(s)
			}
			step.End(s)
		}
	}
	read := func() *timeline.Recording {
		rec, err := r.Read(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return rec
	}
	record()
	rec := read()
	w := &nowhere{}
	for b.Loop() {
		var err error
		switch what {
		case "read":
			b.StopTimer()
			record()
			b.StartTimer()
			read()
		case "tree":
			err = timeline.WriteTree(w, rec, timeline.TreeOptions{})
		case "timeline":
			err = timeline.WriteTimeline(w, rec, timeline.TimelineOptions{})
		case "chrome":
			err = timeline.WriteChromeTrace(w, rec)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}
