//go:build gpu

package pinned_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// On a real GPU, a block, allocated or registered, is not reused while a copy that is queued behind long work has still
// to read it. Afterwards it is reused.
func TestPinnedOnCUDA(t *testing.T) {
	for _, settings := range []string{
		"", "pinned_use_cuda_host_register:True,pinned_num_register_threads:8", "pinned_reserve_segment_size_mb:64",
	} {
		t.Run(settings, func(t *testing.T) {
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			d, err := driver.Open("cuda:0")
			must(err)
			defer func() { must(d.Close()) }()
			cfg, err := pinned.ParseConfig(settings)
			must(err)
			a := open(t, d, cfg)
			s, err := d.NewStream(driver.StreamOptions{})
			must(err)
			const size, work = 4 << 20, 4 << 30
			p, err := d.Alloc(work)
			must(err)
			b := alloc(t, a, size)
			want := bytes.Repeat([]byte("ashlar!!"), size/8)
			copy(a.Bytes(b), want)
			for range 20 { // about a millisecond each on an H200; registering a block can take longer
				must(s.Fill(p, 9, work))
			}
			must(d.Pinned().CopyInAsync(s, p, a.Bytes(b)))
			piece(t, a, b, s)
			a.Free(b)
			other := alloc(t, a, size)
			if same(b, other) {
				t.Error("a block is reused while a copy has still to read it")
			}
			clear(a.Bytes(other))
			must(s.Sync(context.Background()))
			got := make([]byte, size)
			must(s.CopyOut(got, p))
			if !bytes.Equal(got, want) {
				t.Error("the copy read something else")
			}
			again := alloc(t, a, size)
			if !same(b, again) {
				t.Error("the block did not come back")
			}
			a.Free(other)
			a.Free(again)
			must(a.Close())
			must(d.Free(p))
		})
	}
}
