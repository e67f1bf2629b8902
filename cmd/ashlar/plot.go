package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/plot"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/verify"
	"golang.org/x/term"
)

type plotCmd struct {
	traceArgs
	momentArgs
	Kind       string     `enum:"memory,addresses,compare" default:"memory" placeholder:"KIND" help:"memory (over time; the default), addresses (over time) or compare (the rows of a replay)."`
	Output     string     `short:"o" required:"" placeholder:"FILE" help:"Write to FILE, an SVG or, if its name ends in .png, a PNG; - is standard output."`
	Force      bool       `help:"Replace FILE if it exists."`
	Format     string     `enum:"auto,svg,png" default:"auto" placeholder:"FORMAT" help:"svg, png or auto (the default), as the name of FILE says."`
	Dark       bool       `help:"Draw a PNG with light text on a dark background. An SVG follows its reader's choice."`
	By         []string   `enum:"line,function,module,stack,category,stream,pool,tag" placeholder:"KEY" help:"Group blocks by line, function, module, stack, category, stream, pool or tag; several make groups."`
	From       momentName `placeholder:"MOMENT" help:"Begin the picture at this moment."`
	To         momentName `placeholder:"MOMENT" help:"End the picture at this moment."`
	Axis       string     `enum:"auto,time,events" default:"auto" placeholder:"AXIS" help:"time, events (at equal distances) or auto (the default): events if nothing happens during a quarter of the time."`
	Allocators []string   `name:"allocator" short:"a" sep:"none" placeholder:"NAME[:SETTINGS]" help:"With compare: an allocator to compare, as for replay; may be repeated."`
	Limit      limit      `placeholder:"SIZE" help:"With compare: limit of the memory that each allocator reserves, as for replay."`
	Smallest   bool       `help:"With compare: search for the smallest limit under which the trace completes."`
}

// Help implements kong.HelpProvider.
func (*plotCmd) Help() string {
	return `Draws a picture that needs no browser, for a report, a chat or a paper. Several traces, and several devices of one,
are drawn one below the other, with one scale and one color for each name.

    memory      requested memory over time, in bands by the line that requested it, below the line of reserved
                memory. Beside it are the holders of the memory at one moment, the peak if --at is missing; they add up.
                Steps, requests that failed (red) and times without recording are marked
    addresses   the addresses over time: where the blocks lay, and the free memory between them
    compare     the memory that other settings and allocators would reserve, as in the table of ashlar replay

Without stacks, blocks are grouped by category, and without categories by stream. --from step:3 --to step:5 shows
whole steps.

` + momentHelp + `

Examples:

    ashlar plot -o run.svg run.pickle
    ashlar plot -o run.png --by category --at oom run.pickle
    ashlar plot -o step.svg --from 10s --to 12s run.pickle
    ashlar plot -o holes.svg --kind addresses run.pickle
    ashlar plot -o ranks.svg rank*.pickle
    ashlar plot -o compare.png --kind compare --smallest -a caching -a arena -a paged run.pickle`
}

// Run implements the command.
func (c *plotCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	keys, err := holderKeys(c.By)
	if err != nil {
		return err
	}
	if len(c.By) == 0 {
		keys = nil
	}
	if f, ok := s.out.w.(*os.File); ok && c.Output == "-" && c.isPNG() && term.IsTerminal(int(f.Fd())) {
		return usageError{errors.New("png is not for a terminal: name a file with --output")}
	}
	out, err := s.openOutput(c.Output, c.Force, c.Traces...)
	if err != nil {
		return err
	}
	var panels []plot.Panel
	err = c.each(s, func(in *input, p *progress) error {
		p.at("drawing " + in.name())
		var more []plot.Panel
		var err error
		if c.Kind == "compare" {
			more, err = c.comparisons(in, p)
		} else {
			more, err = c.histories(in, keys)
		}
		panels = append(panels, more...)
		return err
	})
	if err != nil {
		return err
	}
	return out.write(func(w io.Writer) error { return c.write(w, plot.Draw(panels...)) })
}

// check reports flags that do not go together.
func (c *plotCmd) check() error {
	compare := c.Kind == "compare"
	for flag, given := range map[string]bool{
		"--at": c.At != "", "--by": len(c.By) > 0, "--from": c.From != "", "--to": c.To != "", "--frames": c.Frames != "user",
		"--axis": c.Axis != "auto",
	} {
		if compare && given {
			return usageError{fmt.Errorf("%s: compare shows no moments and no groups; use --kind memory or addresses", flag)}
		}
	}
	for flag, given := range map[string]bool{
		"--allocator": len(c.Allocators) > 0, "--limit": c.Limit != limit{}, "--smallest": c.Smallest,
	} {
		if !compare && given {
			return usageError{fmt.Errorf("%s: only with --kind compare", flag)}
		}
	}
	for _, spec := range c.Allocators {
		if err := checkAllocator(spec); err != nil {
			return err
		}
	}
	switch ending := strings.ToLower(filepath.Ext(c.Output)); {
	case c.Format != "auto" || ending == ".svg" || ending == ".png":
	case c.Output == "-":
		c.Format = "svg"
	default:
		return usageError{fmt.Errorf("--output %s: want a name that ends in .svg or .png, or --format",
			displayPath(c.Output))}
	}
	if c.Dark && !c.isPNG() {
		return usageError{errors.New("--dark: an SVG follows its reader's choice; --format png draws a PNG")}
	}
	return nil
}

// comparisons returns the comparison of each device.
func (c *plotCmd) comparisons(in *input, p *progress) (panels []plot.Panel, err error) {
	works, err := in.works()
	if err != nil {
		return nil, err
	}
	for _, w := range works {
		result, err := replay.Compare(w, replay.CompareOptions{
			Specs: c.Allocators, Limit: c.Limit.of(w), Smallest: c.Smallest, Progress: p.update,
		})
		if err != nil {
			return nil, err
		}
		panels = append(panels, plot.Comparison(panelTitle(in, w.Device, len(works)), result))
	}
	return panels, nil
}

// histories returns the memory or the addresses of each device. A device that lacks one of the moments is left out if
// another has them.
func (c *plotCmd) histories(in *input, keys []holders.Key) (panels []plot.Panel, err error) {
	if in.script != nil {
		return nil, errors.New("a script has no times and no addresses; use --kind compare")
	}
	all, err := holders.All(in.snapshot)
	if err != nil {
		return nil, err
	}
	draw := plot.Memory
	if c.Kind == "addresses" {
		draw = plot.Addresses
	}
	missing := error(verify.ErrNoHistory)
	for _, h := range all {
		if c.Kind == "memory" && len(h.Trace.Events) == 0 {
			continue
		}
		h.Frames.Fold(foldings[c.Frames])
		x, failed := draw(h, plot.Options{
			Title: panelTitle(in, h.Trace.Device, len(all)), By: keys, At: string(c.At),
			From: string(c.From), To: string(c.To), Axis: axes[c.Axis],
		})
		if failed != nil {
			missing = failed
			continue
		}
		panels = append(panels, x)
	}
	if len(panels) == 0 {
		return nil, missing
	}
	return panels, nil
}

// axes are the values of --axis.
var axes = map[string]plot.Axis{"auto": plot.AxisAuto, "time": plot.AxisTime, "events": plot.AxisEvents}

// panelTitle is the name of a recording and, if it has several devices, the device.
func panelTitle(in *input, device, devices int) string {
	if devices > 1 {
		return fmt.Sprintf("%s, device %d", in.name(), device)
	}
	return in.name()
}

func (c *plotCmd) isPNG() bool {
	return c.Format == "png" || c.Format == "auto" && strings.EqualFold(filepath.Ext(c.Output), ".png")
}

// write writes the picture in its format.
func (c *plotCmd) write(w io.Writer, p *plot.Picture) error {
	if c.isPNG() {
		theme := plot.Light
		if c.Dark {
			theme = plot.Dark
		}
		return p.WritePNG(w, theme)
	}
	return p.WriteSVG(w)
}
