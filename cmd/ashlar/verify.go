package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/trace"
)

type verifyCmd struct {
	traceArgs
	Settings *string `placeholder:"S" help:"Settings to replay with, in the syntax of PYTORCH_CUDA_ALLOC_CONF, instead of the recorded ones."`
	Limit    size    `placeholder:"SIZE" help:"Memory limit of the recorded process, which PyTorch's traces do not contain. Without it the driver fails the calls that failed when they were recorded."`
	Capacity size    `placeholder:"SIZE" help:"Memory of the recorded device (default: an H200's, 139.8GiB)."`
	Device   string  `placeholder:"DEVICE" help:"Back the recorded addresses with memory of this device, such as cuda:0 or host, and write and check every block."`
	JSON     bool    `name:"json" help:"Print one JSON object for each trace."`
}

// Help implements kong.HelpProvider.
func (*verifyCmd) Help() string {
	return `Replays the recorded requests on Ashlar's caching allocator, with the recorded segment addresses and the recorded completions
of frees, and compares the result with PyTorch's: the address of every allocation, every segment event, out-of-memory events,
the peaks, and the final state block by block. If anything differs, the first difference is printed with the entries around
it, and the exit code is 1.

With --device, an exact trace is replayed again with memory of that device: every block is written when it is allocated, and
checked when its free completes. This takes as long as writing and reading the bytes of all requests. The exit code is 1 if a
block changed.

Each trace is one line, with --json too. For a trace with several devices the figures are sums.

Examples:

    ashlar verify run.pickle
    ashlar verify --limit 18.2GiB run.pickle      # set_per_process_memory_fraction was used
    ashlar verify --device cuda:0 run.pickle      # with real memory behind the addresses
    ashlar verify --json *.pickle.zst`
}

// verdictLine is the output of --json.
type verdictLine struct {
	Trace                string `json:"trace"`
	Allocs               int    `json:"allocs"`
	AddressesMatched     int    `json:"addresses_matched"`
	SegmentEvents        int    `json:"segment_events"`
	SegmentEventsMatched int    `json:"segment_events_matched"`
	Blocks               int    `json:"blocks"`
	BlocksMatched        int    `json:"blocks_matched"`
	PeaksEqual           bool   `json:"peaks_equal"`
	Exact                bool   `json:"exact"`
	BlocksChecked        int    `json:"blocks_checked,omitempty"` // of --device: written and compared
	BytesChecked         int64  `json:"bytes_checked,omitempty"`

	Notes []string `json:"notes,omitempty"` // what was assumed where the file does not say
}

// Run implements the command.
func (c *verifyCmd) Run(s *streams) (err error) {
	opts := verify.Options{Limit: int64(c.Limit), TotalMemory: int64(c.Capacity)}
	var notes []string
	if c.Settings != nil {
		cfg, n, err := caching.ParseConfig(*c.Settings)
		if err != nil {
			return usageError{fmt.Errorf("--settings: %w", err)}
		}
		opts.Config, notes = &cfg, n
	}
	if c.Device != "" {
		if err := checkDevice(c.Device); err != nil {
			return err
		}
		dev, err := openFree(c.Device)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		opts.Device = dev
	}
	return c.each(s, func(in *input, p *progress) error {
		if in.script != nil {
			return errors.New("a script has no recorded addresses to compare with; use replay")
		}
		p.at("verifying " + in.name())
		v, err := verify.Verify(in.snapshot, opts)
		p.end()
		if _, _, bad := verify.RecordedConfig(in.snapshot); bad != nil && opts.Config == nil {
			err = fmt.Errorf("%w; --settings replaces them", bad)
		}
		var changed *verify.ContentsError
		if errors.As(err, &changed) { // exit with the code of a difference
			s.fail(displayPath(in.path), err)
			return exit(exitDiffers)
		}
		if err != nil {
			return err
		}
		if c.JSON {
			err = json.NewEncoder(s.out).Encode(verdictLine{
				in.path, v.Allocs, v.AddressesMatched, v.SegmentEvents, v.SegmentEventsMatched, v.Blocks,
				v.BlocksMatched,
				v.PeaksEqual(), v.Exact, v.Painted, v.PaintedBytes, append(notes, v.Notes...),
			})
		} else {
			_, err = fmt.Fprint(s.out, cleanLines(verdictText(in, &v, append(notes, v.Notes...))))
		}
		if err == nil && !v.Exact {
			return exit(exitDiffers)
		}
		return err
	})
}

func verdictText(in *input, v *verify.Verdict, notes []string) string {
	var b strings.Builder
	word, peaks := "exact", "peaks equal"
	if !v.Exact {
		word = "differs"
	}
	if !v.PeaksEqual() {
		peaks = "peaks differ"
	}
	fmt.Fprintf(&b, "%s: %s: %s of %s addresses, %s of %s segment events, ", in.name(), word,
		count(v.AddressesMatched), count(v.Allocs), count(v.SegmentEventsMatched), count(v.SegmentEvents))
	if v.OOMs > 0 {
		fmt.Fprintf(&b, "%s of %s out of memory, ", count(v.OOMsMatched), count(v.OOMs))
	}
	fmt.Fprintf(&b, "%s of %s blocks, %s", count(v.BlocksMatched), count(v.Blocks), peaks)
	if v.Painted > 0 {
		fmt.Fprintf(&b, "; %s of %s written and found unchanged", plural(v.Painted, "block"),
			bytesize.Format(v.PaintedBytes))
	}
	b.WriteString("\n")
	if v.Difference != nil {
		fmt.Fprintf(&b, "  first difference: %v\n", v.Difference)
		b.WriteString(around(in.snapshot.Traces[v.Difference.Device], v.Difference.Entry))
	}
	if v.LimitFound {
		fmt.Fprintf(&b, "  note: the file does not name the memory limit; when garbage was collected shows that it "+
			"was about %s\n", bytesize.Format(v.Limit))
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "  note: %s\n", n)
	}
	return b.String()
}

// around shows an entry with three before it and three after it.
func around(t *trace.Trace, entry int) string {
	if entry < 0 {
		return ""
	}
	var b strings.Builder
	for i := max(0, entry-3); i <= entry+3 && i < len(t.Events); i++ {
		e := &t.Events[i]
		mark := " "
		if i == entry {
			mark = ">"
		}
		fmt.Fprintf(&b, "  %s %9s  %-15v %14s bytes at %#014x on stream %d\n",
			mark, count(i), e.Action, count(e.Size), uint64(e.Ptr), t.Streams[e.Stream])
	}
	return b.String()
}
