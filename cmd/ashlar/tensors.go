package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/tensor"
)

type tensorsCmd struct {
	Files  []string `arg:"" name:"file" help:"Files of tensors, or directories of checkpoints."`
	Print  []string `placeholder:"NAME" sep:"none" help:"Print this tensor instead of the list; may be repeated. The array of a .npy file has the name \"\"."`
	Device string   `placeholder:"DEVICE" help:"Load all tensors to this device (cuda:0, host or sim, with or without settings) and print the time it takes."`
	JSON   bool     `name:"json" help:"Print one JSON object for each file."`
}

// Help implements kong.HelpProvider.
func (*tensorsCmd) Help() string {
	return `Lists the tensors in safetensors files and in numpy's .npy and .npz files, with their types, shapes and sizes. For a sharded
checkpoint, pass the directory or the index (model.safetensors.index.json). Only headers are read. They are checked in full,
against the size of the file too.

With --device all tensors are copied to the device, as a program would load them. A file that was just read comes from the
system's page cache; to measure the disk, drop the cache first.

Examples:

    ashlar tensors model.safetensors
    ashlar tensors --json checkpoint/ | jq -r '.tensors[] | select(.dtype == "BF16") | .name'
    ashlar tensors --print lm_head.weight checkpoint/
    ashlar tensors --device cuda:0 checkpoint/`
}

// tensorFileLine is the output of --json.
type tensorFileLine struct {
	File     string            `json:"file"`
	Format   string            `json:"format"` // safetensors, npy or npz
	Tensors  []tensorLine      `json:"tensors"`
	Size     int64             `json:"size"` // of all tensors
	Metadata map[string]string `json:"metadata,omitempty"`

	Device  string   `json:"device,omitempty"` // with --device
	Seconds *float64 `json:"seconds,omitempty"`
	Rate    *float64 `json:"gb_per_s,omitempty"` // 10^9 bytes
}

type tensorLine struct {
	Name  string `json:"name"`
	DType string `json:"dtype"` // as the format has it: BF16, <f4
	Shape []int  `json:"shape"`
	Size  int64  `json:"size"`
	File  string `json:"file,omitempty"` // which holds it, of a checkpoint in several
}

// Run implements the command.
func (c *tensorsCmd) Run(s *streams) error {
	spec := c.Device
	if spec == "" && len(c.Print) > 0 {
		spec = "host"
	}
	var at *tensor.Place
	if spec != "" {
		var err error
		if at, err = compute.Open(spec); err != nil {
			return deviceError(spec, err)
		}
	}
	code := exitOK
	for i, path := range c.Files {
		if !s.out.flush() {
			break // the output is closed
		}
		if err := c.show(s, at, path, i == 0); err != nil {
			s.failNamed(fileFirst(err))
			code = max(code, exitCode(err))
		}
	}
	if at != nil {
		if err := at.Close(); err != nil {
			return err
		}
	}
	return ended(code)
}

// show lists, prints or loads one file.
func (c *tensorsCmd) show(s *streams, at *tensor.Place, path string, first bool) error {
	p := newProgress(s.err, "reading "+displayPath(path))
	opened := p.awaitWriter(path)
	f, err := openTensors(path)
	opened()
	p.end()
	if err != nil {
		return err
	}
	defer f.close()
	line := tensorFileLine{File: path, Format: f.format, Tensors: f.tensors, Metadata: f.metadata}
	for _, t := range f.tensors {
		line.Size += t.Size
	}
	if c.Device != "" {
		if err := c.load(s, at, f, &line); err != nil {
			return err
		}
	}
	switch {
	case len(c.Print) > 0:
		return c.print(s, at, f)
	case c.JSON:
		return json.NewEncoder(s.out).Encode(&line)
	}
	if !first {
		fmt.Fprintln(s.out)
	}
	writeTensors(s.out, &line)
	return nil
}

// load loads all tensors and measures the time.
func (c *tensorsCmd) load(s *streams, at *tensor.Place, f *tensorFile, line *tensorFileLine) error {
	p := newProgress(s.err, "loading "+displayPath(line.File)+" to "+c.Device)
	defer p.end()
	scope := at.Scope()
	defer scope.Close()
	begun := now()
	err := f.loadAll(context.Background(), scope.Place, func(done, total int64) { p.update(ratio(done, total)) })
	if err == nil {
		err = at.Sync(context.Background())
	}
	if err != nil {
		return err
	}
	seconds := now().Sub(begun).Seconds()
	line.Device, line.Seconds = c.Device, &seconds
	if seconds > 0 {
		rate := float64(line.Size) / 1e9 / seconds
		line.Rate = &rate
	}
	return nil
}

// print prints the tensors of --print.
func (c *tensorsCmd) print(s *streams, at *tensor.Place, f *tensorFile) error {
	for _, name := range c.Print {
		t, err := f.load(at, name)
		if err != nil {
			return err
		}
		text := t.String()
		t.Release()
		if c.JSON {
			err = json.NewEncoder(s.out).Encode(map[string]string{"file": f.path, "name": name, "text": text})
		} else {
			_, err = fmt.Fprintf(s.out, "%s\n%s\n", clean(name, maxWord), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func writeTensors(w *page, l *tensorFileLine) {
	fmt.Fprintf(w, "%s: %s, %s, %s\n", displayPath(l.File), l.Format, plural(len(l.Tensors), "tensor"),
		bytesize.Format(l.Size))
	field := func(name, text string) { w.paragraph(pad("  "+name, -12), text) }
	if l.Seconds != nil {
		text := fmt.Sprintf("to %s in %ss", l.Device, bytesize.ThreeDigits(*l.Seconds))
		if l.Rate != nil {
			text += fmt.Sprintf(", %s GB/s", bytesize.ThreeDigits(*l.Rate))
		}
		field("loaded", text)
	}
	for i, key := range slices.Sorted(maps.Keys(l.Metadata)) {
		name := ""
		if i == 0 {
			name = "metadata"
		}
		field(name, clean(key, maxWord)+": "+clean(l.Metadata[key], maxWord))
	}
	if len(l.Tensors) == 0 {
		return
	}
	field("types", typesText(l.Tensors))
	fmt.Fprintln(w)
	t := table{header: []string{"tensor", "type", "shape", "size"}, marked: -1}
	for _, x := range l.Tensors {
		t.rows = append(t.rows, []string{x.Name, x.DType, shapeText(x.Shape), bytesize.Format(x.Size)})
	}
	t.write(w)
}

// typesText lists the bytes of each type, the largest first.
func typesText(tensors []tensorLine) string {
	type sum struct {
		name  string
		n     int
		bytes int64
	}
	var sums []*sum
	for _, t := range tensors {
		i := slices.IndexFunc(sums, func(s *sum) bool { return s.name == t.DType })
		if i < 0 {
			i = len(sums)
			sums = append(sums, &sum{name: t.DType})
		}
		sums[i].n++
		sums[i].bytes += t.Size
	}
	slices.SortStableFunc(sums, func(a, b *sum) int { return int(min(max(b.bytes-a.bytes, -1), 1)) })
	parts := make([]string, len(sums))
	for i, s := range sums {
		parts[i] = fmt.Sprintf("%s %s of %s", count(s.n), s.name, bytesize.Format(s.bytes))
	}
	return strings.Join(parts, ", ")
}

func shapeText(shape []int) string { return strings.ReplaceAll(fmt.Sprint(shape), " ", ", ") }
