package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/snapshot"
)

// momentArgs say which moment of a recording a command shows, and how stacks appear.
type momentArgs struct {
	At     momentName `placeholder:"MOMENT" help:"The moment: peak, oom, oom:N, end, step:N, event:N, or a time since the start such as 12.5s."`
	Frames string     `enum:"user,libraries,all" default:"user" placeholder:"WHICH" help:"Frames of stacks: user (the default), libraries (all but PyTorch's) or all."`
}

// A momentName is the name of a moment on the command line, or "".
type momentName string

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *momentName) UnmarshalText(text []byte) error {
	*m = momentName(text)
	return holders.CheckMoment(string(text))
}

// momentHelp explains momentArgs.
const momentHelp = `A MOMENT is peak (the most requested memory), oom (the last request that failed; oom:2 is the second), end, step:3 (the
peak of a step: by annotations, or where the requests repeat), a time since the start (12.5s), or event:100.`

// foldings are the values of --frames.
var foldings = map[string]holders.Folding{
	"user": holders.FoldLibraries, "libraries": holders.FoldTorch, "all": holders.FoldNone,
}

// views returns the memory of each device at the moment, the peak if none is given. A device that has no such moment is
// left out if another has it.
func (a *momentArgs) views(s *snapshot.Snapshot) (views []*holders.View, missing error) {
	at := string(cmp.Or(a.At, "peak"))
	all, err := holders.All(s)
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		h.Frames.Fold(foldings[a.Frames])
		m, failed := h.Moment(at)
		if failed != nil {
			missing = errors.Join(missing, failed)
			continue
		}
		views = append(views, h.At(m))
	}
	if len(views) > 0 {
		return views, nil
	}
	return nil, missing
}

// holdersWidth is the maximum width of tables of holders in columns, which may be pasted into messages.
const holdersWidth = 80

// A heldMemory is the output of info --json with a moment, for one device.
type heldMemory struct {
	Trace   string       `json:"trace"`
	Device  int          `json:"device"`
	Moment  string       `json:"moment"`    // such as "the peak"
	Event   int          `json:"event"`     // the last one before the moment; -1 if there is none
	Seconds float64      `json:"seconds"`   // since the first event
	Bytes   int64        `json:"requested"` // of the active blocks
	Blocks  int          `json:"blocks"`
	By      []string     `json:"by"`
	Holders []heldMember `json:"holders"` // the largest first; their bytes add up to requested
}

// A heldMember is one holder. The values are in the order of heldMemory.By.
type heldMember struct {
	Values []string `json:"values"`
	Bytes  int64    `json:"bytes"`
	Blocks int      `json:"blocks"`
}

// writeHolders writes the holders of the memory at a moment.
func (c *infoCmd) writeHolders(s *streams, in *input, views []*holders.View, keys []holders.Key, first *bool) error {
	for _, v := range views {
		if c.JSON {
			if err := json.NewEncoder(s.out).Encode(heldOf(in, v, keys)); err != nil {
				return err
			}
			continue
		}
		if !*first {
			fmt.Fprintln(s.out)
		}
		*first = false
		width := s.out.width
		s.out.width = min(width, holdersWidth)
		device := ""
		if len(views) > 1 {
			device = fmt.Sprintf(", device %d", v.Device())
		}
		s.out.paragraph("", fmt.Sprintf("%s%s: %v in %s", in.name(), device, v.Moment, plural(len(v.Blocks), "block")))
		writeHolderTable(s.out, v, keys, c.Top, bytesize.Format)
		s.out.width = width
	}
	return nil
}

func heldOf(in *input, v *holders.View, keys []holders.Key) *heldMemory {
	held := &heldMemory{
		Trace: in.path, Device: v.Device(), Moment: v.Moment.Name, Event: v.Moment.Event,
		Seconds: v.Moment.Since.Seconds(), Bytes: v.Bytes, Blocks: len(v.Blocks), By: keyNames(keys), Holders: []heldMember{},
	}
	for _, x := range v.By(keys...) {
		held.Holders = append(held.Holders, heldMember{x.Values, x.Bytes, x.Blocks})
	}
	return held
}

// writeHolderTable writes at most a number of holders, or all if it is 0, and the sum of the others. The function size
// writes a number of bytes.
func writeHolderTable(w *page, v *holders.View, keys []holders.Key, most uint, size func(int64) string) {
	all := v.By(keys...)
	shown := all
	if most > 0 && uint(len(all)) > most+1 { // a line for one more is as long as that one
		shown = all[:most]
	}
	fmt.Fprintf(w, "\n%s %s %s  %s\n", pad("requested", 12), pad("share", 7), pad("blocks", 8), strings.Join(keyNames(keys), ", "))
	line := func(bytes int64, blocks int, label string) {
		w.paragraph(fmt.Sprintf("%s %s %s  ", pad(size(bytes), 12), pad(bytesize.Percent(bytes, v.Bytes), 7),
			pad(count(blocks), 8)), label)
	}
	var bytes int64
	blocks := 0
	for _, x := range shown {
		line(x.Bytes, x.Blocks, x.Label)
		bytes += x.Bytes
		blocks += x.Blocks
	}
	if n := len(all) - len(shown); n > 0 {
		line(v.Bytes-bytes, len(v.Blocks)-blocks, fmt.Sprintf("%s others; --top 0 shows all", count(n)))
	}
}

// holderKeys returns the keys with some names, the user's line if there are none.
func holderKeys(names []string) ([]holders.Key, error) {
	if len(names) == 0 {
		names = []string{holders.ByLine.String()}
	}
	keys := make([]holders.Key, len(names))
	for i, name := range names {
		k, err := holders.ParseKey(name)
		if err != nil {
			return nil, usageError{err}
		}
		keys[i] = k
	}
	return keys, nil
}

func keyNames(keys []holders.Key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.String()
	}
	return names
}
