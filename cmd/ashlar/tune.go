package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/allocconf"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/tune"
)

type tuneCmd struct {
	traceArgs
	Tries    int    `default:"24" placeholder:"N" help:"The number of settings to try (default: 24)."`
	Budget   budget `default:"1%" placeholder:"TIME" help:"Maximum of the driver's time: a part of the recorded time, such as 1%, or a duration, such as 20ms (default: 1%)."`
	Limit    size   `placeholder:"SIZE" help:"Limit into which each recording should fit (default: the recorded one, if the file has it)."`
	Capacity size   `placeholder:"SIZE" help:"Memory of the device (default: an H200's, 139.8GiB)."`
	Keep     string `placeholder:"SETTINGS" help:"Settings that must not change, such as expandable_segments:False."`
	All      bool   `xor:"form" help:"List all settings that were tried."`
	JSON     bool   `name:"json" xor:"form" help:"Print one JSON object."`
}

// Help implements kong.HelpProvider.
func (*tuneCmd) Help() string {
	return `Searches PyTorch's allocator settings for the one that needs the least memory, by replaying all given
recordings under each, and prints it as a line to paste. If nothing helps, it says so.

What a recording needs with a setting is found by replays under lower and lower limits, to 1 MiB: the memory at the
smallest limit under which the recording completes and the driver's calls for memory take no more time than --budget
allows. (A cache grows while the device has memory left. So what is reserved without a limit is more than what is
needed.) The first third of a recording does not count for the budget, because the cache fills there. If the driver's
calls with the recorded settings take more time in all, that is the budget. Times of driver calls are modelled.

One setting is chosen for all recordings: one with which the most recordings fit into their limits; and then the one
that needs the least, averaged over the recordings and their halves. Each key of the setting must save 1 %, all of
them 40 MiB, and no recording may need 1 % more than with its recorded settings.

The choice is checked on parts that are held back: each recording in turn, and the first and the second half of all of
them. A setting is chosen without that part, and tried on it. If it saves nothing there, the gain may be particular to
this recording.

The search varies expandable_segments, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions,
garbage_collection_threshold and large_segment_size_mb: first alone, then combinations near the best. Other recorded
settings are kept. --keep fixes any of them.

--json prints an object with the keys helps, line, settings, saving, recordings (for each, figures with the recorded
and with the best settings), held_back and tried. Sizes are bytes, times nanoseconds, and savings parts of 1. Unknown
values are null.

Examples:

    ashlar tune run.pickle
    ashlar tune --limit 22GiB rank*.pickle
    ashlar tune --budget 0.1% --keep expandable_segments:False run.pickle
    ashlar tune --tries 100 --all run.pickle
    ashlar tune --json run.pickle | jq -r .line`
}

// A budget is the maximum of the driver's time on the command line: 1% or 20ms.
type budget tune.Budget

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *budget) UnmarshalText(text []byte) error {
	if number, percent := strings.CutSuffix(string(text), "%"); percent {
		part, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(part > 0 && part <= 100) {
			return fmt.Errorf("budget %q: want a number before the %%, more than 0 and at most 100", text)
		}
		*b = budget{Part: part / 100}
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf("budget %q: want a part of the recorded time, such as 1%%, or a duration, such as 20ms", text)
	}
	*b = budget{Time: d}
	return nil
}

// String is the budget as a user writes it.
func (b budget) String() string {
	if b.Time > 0 {
		return b.Time.String()
	}
	return strconv.FormatFloat(100*b.Part, 'g', 6, 64) + " %"
}

// A tuning is the recordings of one search, and its result.
type tuning struct {
	*tune.Result
	names  []string // of the works
	inputs []*input // of the works
	opts   tune.Options
	budget budget
	prefix string // settings of the line to paste that were not varied
}

// maxTries bounds --tries: there are fewer settings.
const maxTries = 100_000

// Run implements the command.
func (c *tuneCmd) Run(s *streams) error {
	if c.Tries < 1 || c.Tries > maxTries {
		return usageError{fmt.Errorf("--tries %d: want 1 to %d", c.Tries, maxTries)}
	}
	if _, _, err := caching.ParseConfig(c.Keep); err != nil {
		return usageError{fmt.Errorf("--keep %q: %w", c.Keep, err)}
	}
	t := &tuning{budget: c.Budget, opts: tune.Options{
		Tries: c.Tries, Budget: tune.Budget(c.Budget), Limit: int64(c.Limit), Capacity: int64(c.Capacity),
	}}
	var works []*replay.Work
	failed := c.each(s, func(in *input, p *progress) error {
		own, err := in.works()
		for _, w := range own {
			works, t.inputs = append(works, w), append(t.inputs, in)
		}
		return err
	})
	var status exit
	if failed != nil && !errors.As(failed, &status) || len(works) == 0 {
		return failed
	}
	t.nameWorks(works)
	t.keepSettings(c.Keep)
	p := newProgress(s.err, fmt.Sprintf("trying %s on %s", plural(c.Tries, "setting"), plural(len(works), "recording")))
	t.opts.Progress = p.update
	var err error
	t.Result, err = tune.Search(works, t.opts)
	p.end()
	if err != nil {
		return err
	}
	if c.JSON {
		err = t.writeJSON(s.out)
	} else {
		t.write(s.out, c.All)
	}
	if err == nil && !t.everyRecordingFits() {
		status = max(status, exitNoRoom)
	}
	if err == nil && status != exitOK {
		err = status
	}
	return err
}

// nameWorks gives each work a name: that of its file, or the path if names are equal, and the device if a file has
// several.
func (t *tuning) nameWorks(works []*replay.Work) {
	files := make(map[string]string) // by name
	equal := make(map[string]bool)
	devices := make(map[*input]int)
	for _, in := range t.inputs {
		if path, seen := files[in.name()]; seen && path != in.path {
			equal[in.name()] = true
		}
		files[in.name()] = in.path
		devices[in]++
	}
	for i, in := range t.inputs {
		name := in.name()
		if equal[name] {
			name = displayPath(in.path)
		}
		if devices[in] > 1 {
			name += fmt.Sprintf(", device %d", works[i].Device)
		}
		t.names = append(t.names, name)
	}
}

// keepSettings sets the settings that are not varied: those of the user, and the recorded ones of other keys if all
// recordings have them.
func (t *tuning) keepSettings(own string) {
	name := func(setting string) string {
		key, _, _ := strings.Cut(setting, ":")
		return strings.TrimSpace(key)
	}
	kept := make(map[string]bool)
	for _, part := range allocconf.Split(own) {
		kept[name(part)] = true
	}
	counts := make(map[string]int)
	var search, line []string
	for _, in := range t.inputs {
		if in.snapshot == nil {
			continue
		}
		for _, part := range allocconf.Split(in.snapshot.Settings.Conf) {
			if part = strings.TrimSpace(part); part == "" || kept[name(part)] || tune.Varies(name(part)) {
				continue
			}
			if counts[part]++; counts[part] < len(t.inputs) {
				continue
			}
			line = append(line, part)
			if _, _, err := caching.ParseConfig(part); err == nil && name(part) != "per_process_memory_fraction" {
				search = append(search, part) // limits are given to each run
			}
		}
	}
	t.prefix = tune.Join(append(line, own)...)
	t.opts.Keep = tune.Join(append(search, own)...)
}

// settings is the value of PYTORCH_CUDA_ALLOC_CONF for a trial other than that of the recorded settings.
func (t *tuning) settings(trial *tune.Trial) string { return tune.Join(t.prefix, trial.Settings) }

// line is the line to paste for the best setting.
func (t *tuning) line() string {
	settings := t.settings(t.Best)
	if settings == "" {
		return "unset PYTORCH_CUDA_ALLOC_CONF"
	}
	if strings.ContainsAny(settings, "<>[] ") {
		settings = "'" + settings + "'"
	}
	return "export PYTORCH_CUDA_ALLOC_CONF=" + settings
}

// everyRecordingFits reports whether each recording completes with the best setting, within its limit if it has one.
func (t *tuning) everyRecordingFits() bool {
	for i := range t.Works {
		if n := &t.Best.Needs[i]; n.Bytes < 0 || !n.Fits {
			return false
		}
	}
	return true
}
