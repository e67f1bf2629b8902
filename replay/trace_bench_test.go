package replay_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A recorded GPT-2 training run through the caching allocator on a simulated device, from the program on. An event is an
// entry of the recording.
func BenchmarkReplayTrace(b *testing.B) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		b.Run("settings="+settings, func(b *testing.B) {
			s, err := snapshot.ReadFile("../testdata/traces/gpt2.pickle.zst")
			if err != nil {
				b.Fatal(err)
			}
			p, err := trace.ToProgram(s.Traces[0], trace.ProgramOptions{})
			if err != nil {
				b.Fatal(err)
			}
			cfg, _, err := caching.ParseConfig(settings)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				dev := sim.New(sim.Options{Unchecked: true})
				a, err := caching.New(dev, cfg)
				if err != nil {
					b.Fatal(err)
				}
				r, err := replay.Run(p, a, dev, replay.Options{})
				if err != nil || !r.Completed {
					b.Fatal(r, err)
				}
			}
			events := float64(b.N) * float64(len(s.Traces[0].Events))
			b.ReportMetric(events/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}
