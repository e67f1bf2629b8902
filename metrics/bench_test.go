package metrics_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/metrics"
)

// A scrape of a hundred caching allocators, as a page.
func BenchmarkScrape(b *testing.B) {
	dev := open(b)
	var r metrics.Registry
	for i := range 100 {
		a := must[*caching.Allocator](b)(caching.New(dev, caching.Default()))
		closing(b, a)
		must[*metrics.Source](b)(r.Add(metrics.Labels{Device: "sim:0", Allocator: fmt.Sprintf("a%d", i)}, a))
	}
	size := int64(len(pageOf(b, &r)))
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
