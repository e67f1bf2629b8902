package browsertest

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/view"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
)

var memoryViz = flag.String("memoryviz", "", "directory with memory_viz, for its benchmark")

// generated returns the file of a recording with so many events.
func generated(t testing.TB, events int) []byte {
	t.Helper()
	var file bytes.Buffer
	if _, err := snapshottest.Write(&file, snapshottest.Config{Events: events}); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func parsed(t testing.TB, file []byte) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sizes are the numbers of events of the recordings that are measured.
var sizes = []int{100_000, 1_000_000, 3_000_000}

// BenchmarkFirstPicture measures the time from the bytes of a file to the first picture in the page. As in the command, the
// page is opened at once, and loads its modules while the server reads the file.
func BenchmarkFirstPicture(b *testing.B) {
	for _, n := range sizes {
		file := generated(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var total float64
			for range b.N {
				s := view.New(view.Options{Version: "test"})
				source := s.Open("generated", "")
				p := openBlank(b, listen(b, s))
				begun := time.Now()
				reading := make(chan error, 1)
				go func() {
					recording, err := snapshot.ReadCompact(bytes.NewReader(file), snapshot.Limits{})
					if err == nil {
						err = source.Set(recording)
					}
					reading <- err
				}()
				p.goTo()
				p.wait(`document.documentElement.dataset.first`)
				if err := <-reading; err != nil {
					b.Fatal(err)
				}
				first := eval[float64](p, `performance.timeOrigin + Number(document.documentElement.dataset.first)`)
				total += first - float64(begun.UnixMicro())/1000
				page, drawing := p.memory()
				b.ReportMetric(page, "page-MiB")
				b.ReportMetric(drawing, "drawing-MiB")
			}
			b.ReportMetric(total/float64(b.N), "first-ms")
			b.ReportMetric(float64(len(file))/mib, "file-MiB")
		})
	}
}

// memory returns the memory of the page's process at its highest, and that of the process that draws, in MiB.
func (b *tab) memory() (page, drawing float64) {
	b.t.Helper()
	r, err := chromedp.CallBrowser(b.ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range r.ProcessInfo {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.ID))
		if err != nil {
			continue // it has ended
		}
		_, text, _ := strings.Cut(string(status), "VmHWM:")
		var kib float64
		if _, err := fmt.Sscan(text, &kib); err != nil {
			b.t.Fatal(err)
		}
		switch p.Type {
		case "renderer":
			page = max(page, kib/1024)
		case "GPU":
			drawing = max(drawing, kib/1024)
		}
	}
	return page, drawing
}

// BenchmarkMemoryViz measures the same for PyTorch's memory_viz. The flag -memoryviz names a directory with its file
// MemoryViz.js and with d3.min.js of version 5, which it would load from a server.
func BenchmarkMemoryViz(b *testing.B) {
	if *memoryViz == "" {
		b.Skip("needs -memoryviz DIR")
	}
	for _, n := range sizes {
		file := generated(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				p := openBlank(b, serveMemoryViz(b, file))
				p.do(chromedp.Navigate(p.url))
				p.wait(`document.querySelectorAll('svg polygon, svg path').length > 10`)
				b.ReportMetric(eval[float64](p, `performance.now()`), "page-ms")
				page, drawing := p.memory()
				b.ReportMetric(page, "page-MiB")
				b.ReportMetric(drawing, "drawing-MiB")
				p.shot(fmt.Sprint(n))
				p.console = nil // its favicon is missing
			}
		})
	}
}

// serveMemoryViz serves memory_viz with a recording, and with d3 from here.
func serveMemoryViz(b *testing.B, file []byte) string {
	b.Helper()
	script, err := os.ReadFile(filepath.Join(*memoryViz, "MemoryViz.js"))
	if err != nil {
		b.Fatal(err)
	}
	imports := regexp.MustCompile(`(?m)^import .*$`)
	local := imports.ReplaceAllString(string(script), "") +
		"\nadd_remote_files([{ name: 'recording', url: 'recording' }])\n"
	m := http.NewServeMux()
	serve := func(path, kind, text string) {
		m.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, text)
		})
	}
	serve("/{$}", "text/html",
		`<!doctype html><body><script src="d3.min.js"></script><script type="module" src="viz.js"></script>`)
	serve("/viz.js", "text/javascript", "const { axisLeft, scaleLinear, zoom, zoomIdentity, brushX } = globalThis.d3\n"+
		strings.Replace(local, "'use strict';", "", 1))
	serve("/recording", "application/octet-stream", string(file))
	m.HandleFunc("/d3.min.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(*memoryViz, "d3.min.js"))
	})
	s := httptest.NewServer(m)
	b.Cleanup(s.Close)
	return s.URL + "/"
}

// BenchmarkPan measures the time of frames while pictures of 100,000 and of nearly 200,000 rectangles move, and says
// what draws them. Without -gpu that is the processor, and frames of a movement have fewer rectangles.
func BenchmarkPan(b *testing.B) {
	s := parsed(b, generated(b, 3_000_000))
	for _, picture := range []struct{ name, view, to string }{
		{"addresses", "addresses", "1500000"},
		{"memory", "memory", "500000"},
	} {
		b.Run(picture.name, func(b *testing.B) {
			p := openBlank(b, serve(b, []string{"generated"}, s))
			p.goTo("view", picture.view, "from", "100000", "to", picture.to)
			p.still()
			var all []float64
			for range b.N {
				all = append(all, eval[[]float64](p, panning)...)
			}
			slices.Sort(all)
			b.ReportMetric(all[len(all)/2], "p50-ms")
			b.ReportMetric(all[len(all)*95/100], "p95-ms")
			b.ReportMetric(all[len(all)-1], "max-ms")
			b.ReportMetric(eval[float64](p, `ashlarView.current.bands.count`), "rectangles")
			b.ReportMetric(eval[float64](p, `Math.min(ashlarView.current.plot.limit, ashlarView.current.bands.count)`),
				"moving")
			b.ReportMetric(0, "ns/op")
			b.Log(eval[string](p, renderer))
		})
	}
}

// panning moves a picture to the left and back, and returns the milliseconds between its frames.
const panning = `new Promise((done) => {
	const t = ashlarView.current, v = t.viewport
	t.request = () => {} // measures drawing, and not the server
	t.plot.frames.length = 0
	let n = 0
	const step = () => {
		v.pan(n++ < 50 ? 0.004 : -0.004, 0, n < 100)
		if (n < 100) requestAnimationFrame(step); else done(t.plot.frames.slice(10))
	}
	step()
})`

// renderer is what draws WebGL's pictures, such as a GPU.
const renderer = `(() => {
	const gl = document.createElement('canvas').getContext('webgl2')
	return gl.getParameter(gl.getExtension('WEBGL_debug_renderer_info').UNMASKED_RENDERER_WEBGL)
})()`
