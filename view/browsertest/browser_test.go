// Package browsertest tests the page of package view in a real browser, a headless Chromium that chromedp drives. It
// is a module of its own, so that the main one does not depend on chromedp:
//
//	cd view/browsertest && go test .
//
// Chromium is found on the PATH, as chromium, chromium-browser or google-chrome. With -shots DIR, every test leaves
// pictures of the page in DIR. Chromium draws with the processor; with -gpu vulkan or -gpu gl-egl it draws with a GPU.
package browsertest

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/view"
	"github.com/chromedp/chromedp"
)

var (
	shots = flag.String("shots", "", "directory for pictures of the page")
	gpu   = flag.String("gpu", "", "draw with a GPU, by ANGLE's backend of this name, such as vulkan or gl-egl")
)

// traces has the recordings of PyTorch.
const traces = "../../testdata/traces"

// browser is the context of the one browser of all tests.
var browser context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1400, 850))
	if *gpu == "" {
		options = append(options, chromedp.Flag("enable-unsafe-swiftshader", true))
	} else {
		options = append(options, chromedp.Flag("use-angle", *gpu), chromedp.Flag("ignore-gpu-blocklist", true),
			chromedp.Flag("enable-gpu", true), chromedp.Flag("disable-software-rasterizer", true))
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "browsertest: start Chromium (on Debian: apt-get install chromium):", err)
		os.Exit(1)
	}
	browser = ctx
	code := m.Run()
	stop()
	cancel()
	os.Exit(code)
}

// read returns a recording of testdata/traces.
func read(t *testing.T, name string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadFile(filepath.Join(traces, name+".pickle.zst"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve shows snapshots, by name, and returns the URL of the page.
func serve(t testing.TB, names []string, snapshots ...*snapshot.Snapshot) string {
	t.Helper()
	s := view.New(view.Options{Version: "test"})
	for i, x := range snapshots {
		if err := s.Open(names[i], names[i]).Set(x); err != nil {
			t.Fatal(err)
		}
	}
	return listen(t, s)
}

// serveLive shows a snapshot of a running program, and returns the source of later ones.
func serveLive(t *testing.T, first *snapshot.Snapshot) (string, *view.Source) {
	t.Helper()
	s := view.New(view.Options{Version: "test", Live: true})
	source := s.Open("live", "")
	if err := source.Set(first); err != nil {
		t.Fatal(err)
	}
	return listen(t, s), source
}

// listen serves the page until the test ends.
func listen(t testing.TB, s *view.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s.Handler(l.Addr())}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return s.URL(l.Addr())
}

// serveTraces shows recordings of testdata/traces.
func serveTraces(t *testing.T, names ...string) string {
	t.Helper()
	var all []*snapshot.Snapshot
	for _, name := range names {
		all = append(all, read(t, name))
	}
	return serve(t, names, all...)
}
