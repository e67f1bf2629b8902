//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestGPUGraph captures work of two streams, forked and joined, and launches it again and again.
func TestGPUGraph(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	a := drivertest.NewStream(t, d)
	b := drivertest.NewStream(t, d)
	const n = 10_000
	p := drivertest.Alloc(t, d, 8*n)
	q := p + 4*n
	f, graphs := gpuFunction(t, d, "fill"), d.Graphs()
	for range 3 { // capture, close, capture again
		testkit.Must(t, a.Fill(p, 0, 8*n))
		before, err := a.Mark()
		testkit.Must(t, err)
		testkit.Must(t, a.Sync(context.Background()))

		testkit.Must(t, graphs.Begin(a))
		if yes, err := graphs.Capturing(a); !yes || err != nil {
			t.Fatalf("Capturing after Begin: %v, %v", yes, err)
		}
		if yes, err := a.Reached(before); !yes || err != nil {
			t.Errorf("a mark from before the capture, during it: reached %v, %v", yes, err)
		}
		fork, err := a.Mark()
		testkit.Must(t, err)
		testkit.Must(t, b.WaitFor(a, fork))
		if yes, err := graphs.Capturing(b); !yes || err != nil {
			t.Errorf("Capturing of a stream that was drawn in: %v, %v", yes, err)
		}
		testkit.Must(t, d.Kernels().Launch(a, fillKernel(f, p, n, 3, 1)))
		testkit.Must(t, d.Kernels().Launch(b, fillKernel(f, q, n, 5, 2)))
		join, err := b.Mark()
		testkit.Must(t, err)
		testkit.Must(t, a.WaitFor(b, join))
		testkit.Must(t, a.Copy(p, q, 16))
		if yes, err := b.Reached(join); yes || err != nil {
			t.Errorf("a mark of the capture, during it: reached %v, %v", yes, err)
		}
		for what, err := range map[string]error{
			"CopyIn":  a.CopyIn(p, make([]byte, 100)),
			"CopyOut": a.CopyOut(make([]byte, 100), p),
			"large":   a.CopyIn(p, make([]byte, 8*n)),
			"Sync":    a.Sync(context.Background()),
		} {
			if !errors.Is(err, driver.ErrCapturing) {
				t.Errorf("%s in a capture: %v, want ErrCapturing", what, err)
			}
		}
		extra, err := d.Alloc(1 << 20) // allocators go on working
		testkit.Must(t, err)

		var g driver.Graph
		ended := make(chan error)
		go func() { // on another thread
			runtime.LockOSThread()
			var err error
			g, err = graphs.End(a)
			ended <- err
		}()
		testkit.Must(t, <-ended)
		if g.Nodes() != 3 {
			t.Errorf("%d nodes, want two kernels and a copy", g.Nodes())
		}
		if yes, err := b.Reached(join); !yes || err != nil {
			t.Errorf("a mark of the capture, after it: reached %v, %v", yes, err)
		}
		got := make([]byte, 8*n)
		testkit.Must(t, a.CopyOut(got, p))
		if !bytes.Equal(got, make([]byte, 8*n)) {
			t.Error("capturing did some of the work")
		}
		for range 10 {
			testkit.Must(t, a.Fill(p, 0, 8*n))
			testkit.Must(t, g.Launch(a))
			wantFilled(t, a, q, n, 5, 2)
			testkit.Must(t, a.CopyOut(got[:16], p))
			testkit.Must(t, a.CopyOut(got[16:32], q))
			if !bytes.Equal(got[:16], got[16:32]) {
				t.Error("the copy behind the join did not see what the fork wrote")
			}
			wantWord(t, a, p, 4, 4*3+1)
		}
		testkit.Must(t, g.Launch(a))
		testkit.Must(t, g.Close()) // under way
		testkit.Must(t, a.Sync(context.Background()))
		testkit.Must(t, d.Free(extra))
	}
}

// wantWord fails the test unless word i at p has the value.
func wantWord(t testing.TB, s driver.Stream, p driver.Pointer, i, value uint32) {
	t.Helper()
	got := make([]byte, 4)
	testkit.Must(t, s.CopyOut(got, p+driver.Pointer(4*i)))
	if v := uint32(got[0]) | uint32(got[1])<<8 | uint32(got[2])<<16 | uint32(got[3])<<24; v != value {
		t.Errorf("word %d is %d, want %d", i, v, value)
	}
}

// TestGPUGraphUnjoined ends a capture with a stream that was drawn in and not waited for.
func TestGPUGraphUnjoined(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	a := drivertest.NewStream(t, d)
	b := drivertest.NewStream(t, d)
	p := drivertest.Alloc(t, d, 4096)
	testkit.Must(t, d.Graphs().Begin(a))
	fork, err := a.Mark()
	testkit.Must(t, err)
	testkit.Must(t, b.WaitFor(a, fork))
	testkit.Must(t, b.Fill(p, 1, 4096))
	if _, err := d.Graphs().End(a); err == nil {
		t.Error("End of a capture with a stream that was not joined: no error")
	}
	for _, s := range []driver.Stream{a, b} {
		if yes, err := d.Graphs().Capturing(s); yes || err != nil {
			t.Errorf("Capturing after a capture that failed: %v, %v", yes, err)
		}
		testkit.Must(t, s.Fill(p, 7, 4096))
		got := make([]byte, 4096)
		testkit.Must(t, s.CopyOut(got, p))
		if !bytes.Equal(got, bytes.Repeat([]byte{7}, 4096)) {
			t.Error("after a capture that failed: other bytes came back")
		}
	}
}

func TestGPUGraphDefaultStream(t *testing.T) {
	d := drivertest.OpenDevice(t, "cuda:0")
	if err := d.Graphs().Begin(d.DefaultStream()); !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("Begin on the default stream: %v, want ErrCapturing", err)
	}
}
