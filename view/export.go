package view

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
)

// An exportText says which tiles an exported page has.
type exportText struct {
	Levels int `json:"levels"`
}

// tileRange returns the events of a tile "LEVEL.K". Level L divides the events into 2^L parts; a tile is one part wide
// and begins at half of K.
func tileRange(name string, events int) (from, to float64, err error) {
	var level, k int
	if _, err := fmt.Sscanf(name, "%d.%d", &level, &k); err != nil || level < 0 || level > 30 || k < 0 || k > 2<<level-2 {
		return 0, 0, fmt.Errorf("tile %q: want LEVEL.K with a level up to 30 and K from 0 to 2*(2^LEVEL-1)", name)
	}
	part := float64(events+1) / float64(int(1)<<level)
	from = -1 + part*float64(k)/2
	return from, from + part, nil
}

// An ExportOptions configure Export. The zero value is valid.
type ExportOptions struct {
	// Specs are allocators for comparisons in the page, as replay.ParseSpec reads them.
	Specs []string

	// MaxBytes is the maximum size of the page. 0 means 64 MiB for a file, and 512 MiB for a folder. Of a larger page,
	// deeper levels of zoom are left out.
	MaxBytes int64
}

// exportLevels is the most levels of zoom in an exported page.
const exportLevels = 6

// exportMoments is the most moments of a recording in an exported page.
const exportMoments = 8

// exportedBlocks is the number of blocks that an exported page can describe.
const exportedBlocks = 20_000

// The usual maximum sizes of exported pages.
const (
	maxFile   = 64 << 20
	maxFolder = 512 << 20
)

// Export writes a page with all of the sources, which have been set, as one HTML file that needs no other file, server
// or network. It has pictures at some levels of zoom, and the state and the holders at the moments that the page
// offers. The error is that of w, of a comparison, or one for a page that is too large without zoom.
func (s *Server) Export(w io.Writer, o ExportOptions) error {
	x, err := s.exporter(o, maxFile)
	if err != nil {
		return err
	}
	data, err := x.data()
	if err != nil {
		return err
	}
	return writePage(w, "<script>"+data+"</script>", "'"+hashOf(data)+"'")
}

// ExportFolder is Export for a folder with the files data.js and index.html. It may be larger than one file. It calls
// write for each of them, with the name and a function that writes the contents.
func (s *Server) ExportFolder(write func(name string, fill func(io.Writer) error) error, o ExportOptions) error {
	x, err := s.exporter(o, maxFolder)
	if err != nil {
		return err
	}
	data, err := x.data()
	if err != nil {
		return err
	}
	err = write("data.js", func(w io.Writer) error {
		_, err := io.WriteString(w, data)
		return err
	})
	if err != nil {
		return err
	}
	return write("index.html", func(w io.Writer) error {
		return writePage(w, `<script src="data.js"></script>`, "'self' file:")
	})
}

// exporter collects the answers for a page, with as many levels of zoom as there is room for.
func (s *Server) exporter(o ExportOptions, usual int64) (*exporter, error) {
	limit := cmp.Or(o.MaxBytes, usual)
	for _, x := range s.sources {
		if len(x.recordings) > 0 {
			x.settle(x.recordings)
		}
	}
	for levels := exportLevels; levels > 0; levels-- {
		x := &exporter{s: s, levels: levels, limit: limit, responses: map[string]string{}}
		err := x.collect(o.Specs)
		if err == nil {
			return x, nil
		}
		if !errors.Is(err, errTooLarge) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("view: the page would have more than %d bytes; export fewer recordings", limit)
}

// data returns the script that has all answers.
func (x *exporter) data() (string, error) {
	text, err := scriptJSON(map[string]any{"responses": x.responses})
	return "globalThis.ashlarExport = " + text + ";", err
}

// errTooLarge says that an exported page has more bytes than allowed.
var errTooLarge = errors.New("view: the page is too large")

// An exporter collects the answers that an exported page needs.
type exporter struct {
	s         *Server
	levels    int
	limit     int64
	bytes     int64
	responses map[string]string // gzip in base64, by path
}

// add adds the answer for a path.
func (x *exporter) add(path string, result any, err error) error {
	if err != nil {
		return fmt.Errorf("view: exporting %s: %w", path, err)
	}
	var body []byte
	if c, ok := result.(*container); ok {
		body = c.encode()
	} else if body, err = json.Marshal(result); err != nil {
		return fmt.Errorf("view: exporting %s: %w", path, err)
	}
	text := base64.StdEncoding.EncodeToString(zipped(body))
	x.responses[path] = text
	if x.bytes += int64(len(text)); x.bytes > x.limit {
		return errTooLarge
	}
	return nil
}

// zipped compresses an answer.
func zipped(body []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(body) // a bytes.Buffer never fails
	_ = z.Close()
	return b.Bytes()
}

// collect collects all answers.
func (x *exporter) collect(specs []string) error {
	about := x.s.overview()
	about.Export = &exportText{Levels: x.levels}
	about.Live = false
	for _, i := range about.Recordings {
		i.File = path.Base(strings.ReplaceAll(i.File, `\`, "/")) // not the directories of a user
		r, _, _ := x.s.find(i.ID)
		if r == nil {
			continue
		}
		if err := x.recording(i, r, specs); err != nil {
			return err
		}
		i.WhatIf, i.WhatIfReason = false, "an exported page cannot replay; run \"ashlar replay\""
	}
	for _, a := range about.Recordings {
		for _, b := range about.Recordings {
			if err := x.diff(a.ID, b.ID); err != nil {
				return err
			}
		}
	}
	return x.add("api/recordings", about, nil)
}

// recording collects the answers about a recording.
func (x *exporter) recording(i *info, r *Recording, specs []string) error {
	base := "api/r/" + i.ID + "/"
	get := func(name string, answer answerer, query string) error {
		q, err := url.ParseQuery(query)
		if err != nil {
			return err
		}
		result, err := answer(r, q)
		if query != "" {
			name += "?" + query
		}
		return x.add(base+name, result, err)
	}
	if err := get("lines", answerLines, ""); err != nil {
		return err
	}
	if err := x.add(base+"blocks", r.largest(exportedBlocks), nil); err != nil {
		return err
	}
	for level := range x.levels {
		for k := range 2<<level - 1 {
			query := fmt.Sprintf("tile=%d.%d", level, k)
			if err := get("memory", answerMemory, query); err != nil {
				return err
			}
			if err := get("addresses", answerAddresses, query); err != nil {
				return err
			}
		}
	}
	seen := map[int]bool{}
	for _, m := range i.Moments[:min(len(i.Moments), exportMoments)] {
		if seen[m.Event] {
			continue
		}
		seen[m.Event] = true
		at := fmt.Sprintf("event=%d", m.Event)
		if err := get("state", answerState, at); err != nil {
			return err
		}
		if err := get("flame", answerFlame, at); err != nil {
			return err
		}
		for _, by := range []string{"line", "category", "module", "stream"} {
			if err := get("holders", answerHolders, at+"&by="+by); err != nil {
				return err
			}
		}
	}
	return x.whatIf(base, i, r, specs)
}

// largest returns the largest blocks, with their stacks.
func (r *Recording) largest(limit int) *blockList {
	list := r.listOf(r.allBlocks(nil), limit)
	for _, b := range list.Blocks {
		block := r.h.Block(b.ID)
		b.Stack = r.stackText(&block)
	}
	return list
}

// whatIf collects a comparison.
func (x *exporter) whatIf(base string, i *info, r *Recording, specs []string) error {
	if len(specs) == 0 || !i.WhatIf {
		return nil
	}
	work, err := r.work()
	if err != nil {
		return err
	}
	ask := &whatIfRequest{Specs: specs, Smallest: true}
	result, err := compare(work, ask, func(float64) {}, func() bool { return false })
	return x.add(base+"whatif", result, err)
}

// diff collects the difference of two recordings at their peaks.
func (x *exporter) diff(a, b string) error {
	first, _, _ := x.s.find(a)
	second, _, _ := x.s.find(b)
	if a == b || first == nil || second == nil {
		return nil
	}
	for _, by := range []string{"line", "category", "module"} {
		query := url.Values{"a": {a}, "b": {b}, "at": {"peak"}, "by": {by}}
		result, err := diff(first, second, query)
		if err := x.add(fmt.Sprintf("api/diff?a=%s&b=%s&at=peak&by=%s", a, b, by), result, err); err != nil {
			return err
		}
	}
	return nil
}

// The lines of index.html that refer to other files.
const (
	styleLine  = `<link rel="stylesheet" href="style.css">`
	scriptLine = `<script type="module" src="main.js"></script>`
	mapLine    = `<script type="importmap">` + moduleMap + `</script>`
)

// writePage writes index.html with the other files of the page in it, and with an element for the data, whose script
// the policy of the page must allow.
func writePage(w io.Writer, data, allow string) error {
	index, err := fs.ReadFile(pageFiles, "index.html")
	if err != nil {
		return err
	}
	style, err := fs.ReadFile(pageFiles, "style.css")
	if err != nil {
		return err
	}
	modules, err := moduleURLs()
	if err != nil {
		return err
	}
	imports, err := scriptJSON(map[string]any{"imports": modules})
	if err != nil {
		return err
	}
	const start = `import "ashlar/main.js";`
	policy := strings.Join([]string{
		"default-src 'none'",
		"script-src data: " + allow + " '" + hashOf(imports) + "' '" + hashOf(start) + "'",
		"style-src '" + hashOf(string(style)) + "'",
		"img-src data: blob:",
		"base-uri 'none'",
		"form-action 'none'",
	}, "; ")
	meta := `<meta http-equiv="Content-Security-Policy" content="` + html.EscapeString(policy) + `">`
	for _, change := range []struct{ from, to string }{
		{styleLine, meta + "\n<style>" + string(style) + "</style>"},
		{mapLine, `<script type="importmap">` + imports + `</script>`},
		{scriptLine, data + "\n" + `<script type="module">` + start + `</script>`},
	} {
		if !bytes.Contains(index, []byte(change.from)) {
			panic("view: index.html lacks the line " + change.from)
		}
		index = bytes.Replace(index, []byte(change.from), []byte(change.to), 1)
	}
	_, err = w.Write(index)
	return err
}

// moduleURLs returns the modules of the page as data: URLs, by the names under which they import each other.
func moduleURLs() (map[string]string, error) {
	files, err := fs.Glob(pageFiles, "*.js")
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	urls := map[string]string{}
	for _, name := range files {
		text, err := fs.ReadFile(pageFiles, name)
		if err != nil {
			return nil, err
		}
		urls["ashlar/"+name] = "data:text/javascript;base64," + base64.StdEncoding.EncodeToString(text)
	}
	return urls, nil
}

// scriptJSON returns JSON that may stand within a script element: it has no "<".
func scriptJSON(value any) (string, error) {
	text, err := json.Marshal(value) // escapes <, > and &
	return string(text), err
}
