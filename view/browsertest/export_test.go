package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/view"
)

// export writes a page with snapshots, by name, and returns its URL.
func export(t testing.TB, o view.ExportOptions, names []string, snapshots ...*snapshot.Snapshot) string {
	t.Helper()
	s := view.New(view.Options{Version: "test"})
	for i, x := range snapshots {
		if err := s.Open(names[i], names[i]).Set(x); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Export(f, o); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return "file://" + name
}

// bandsAt returns the bands [lower edge, height] after an event, in MiB, from the lowest.
func (b *tab) bandsAt(event int) [][2]float64 {
	b.t.Helper()
	return eval[[][2]float64](b, fmt.Sprintf(`(() => { const b = ashlarView.current.bands
		return b.at(b.columnAt(%d)).map((i) => [b.data.y[i] / %d, b.data.h[i] / %[2]d]) })()`, event, mib))
}

func (b *tab) wantBands(event int, want ...[2]float64) {
	b.t.Helper()
	if got := b.bandsAt(event); !slices.Equal(got, want) {
		b.t.Errorf("after event %d are the bands %v, want %v", event, got, want)
	}
}

// An exported page finds blocks by code, size and address.
func TestExportedPageSearches(t *testing.T) {
	b := open(t, export(t, view.ExportOptions{}, []string{"made"}, handmade(plain)))
	b.still()
	for _, c := range []struct{ q, want string }{
		{"FORWARD", "2 blocks, 3.00MiB"},
		{">3MiB", "2 blocks, 12.0MiB"},
		{"<1.5m", "2 blocks, 2.00MiB"},
		{"8 MiB", "1 block, 8.00MiB"},
		{"0x7f0000400001", "1 block, 2.00MiB"},
		{"model.py:30", "1 block, 8.00MiB"},
		{"nowhere", "Nothing was found"},
	} {
		b.search(c.q)
		b.wait(fmt.Sprintf(`document.querySelector('#answers h2')?.textContent === %s &&
			!document.querySelector('#answers').textContent.includes('Searching')`, quote("Search: "+c.q)))
		if got := b.text("#answers"); !strings.Contains(got, c.want) {
			t.Errorf("the search for %q answers %q, want %q", c.q, got, c.want)
		}
		b.press("#answers button", "Close")
	}
	b.search("forward")
	b.press("#answers .answers button", "model.py:20")
	b.wait(`ashlarView.store.state.line !== undefined && ashlarView.current.bands.order.length < 4`)
	b.wantBands(5, [2]float64{0, 2}, [2]float64{2, 1})
	b.search("8MiB")
	b.press("#answers .answers button", "8.00MiB")
	b.wait(`document.querySelector('#details').textContent.includes('Block of 8.00MiB')`)
}

// An exported page shows the blocks of a filter alone, stacked on each other, as the served page does.
func TestExportedPageFilters(t *testing.T) {
	b := open(t, export(t, view.ExportOptions{}, []string{"made"}, handmade(plain)), "colour", "stream")
	b.still()
	b.wantBands(5, [2]float64{0, 4}, [2]float64{4, 2}, [2]float64{6, 8}, [2]float64{14, 1})
	b.press("#details .legend button", "0x0")
	b.wait(`ashlarView.current.bands.data.y.every((y) => y <= 7 * 2 ** 20)`)
	b.wantBands(5, [2]float64{0, 4}, [2]float64{4, 2}, [2]float64{6, 1})
	b.wantBands(9, [2]float64{0, 4}, [2]float64{4, 1}, [2]float64{5, 1})
	b.shot("stream")
	b.goTo("q", "forward")
	b.wantBands(5, [2]float64{0, 2}, [2]float64{2, 1})
	b.wantBands(8, [2]float64{0, 1})
	b.goTo("min", fmt.Sprint(3*mib), "view", "addresses")
	if n := eval[int](b, `ashlarView.current.bands.order.length`); n != 2 {
		t.Errorf("%d rectangles of blocks from 3 MiB, want 2", n)
	}
	b.press(".chip", "at least")
	b.wait(`ashlarView.current.bands.order.length > 2`)
	b.goTo("view", "holders", "stream", "0x7")
	b.wait(`document.querySelectorAll('tbody tr').length === 1`)
	if got := b.text("caption") + b.text("tbody tr") + b.text(".flame"); strings.Count(got, "8.00MiB") < 4 {
		t.Errorf("the holders of the stream are %q", got)
	}
}

// The holders of a filter in an exported page are those that the server tells.
func TestExportedHoldersAreTheServers(t *testing.T) {
	s := read(t, "resnet.stacks")
	figures := `(async () => { const v = ashlarView.current
		const flat = (n, out) => { out.push(n.bytes); n.children?.forEach((c) => flat(c, out)); return out }
		return [v.holders.bytes, v.holders.blocks, v.root.bytes, ...flat(v.root, []).sort((a, b) => b - a),
			...v.holders.holders.map((h) => h.bytes)] })()`
	for _, state := range [][]string{
		{"category", "activations"},
		{"q", "Resnet", "by", "module"},
		{"min", fmt.Sprint(4 * mib), "by", "category"},
	} {
		state = append(state, "view", "holders")
		var got [2][]float64
		for i, page := range []string{
			serve(t, []string{"resnet"}, s),
			export(t, view.ExportOptions{}, []string{"resnet"}, s),
		} {
			b := open(t, page, state...)
			b.wait(`ashlarView.current.root && ashlarView.current.holders.holders.length > 0`)
			got[i] = eval[[]float64](b, figures)
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%v: the exported page has %v, the served one %v", state, got[1], got[0])
		}
	}
}
