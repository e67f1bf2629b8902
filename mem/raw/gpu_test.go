//go:build gpu && linux

package raw_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// The process-wide face on a GPU: a block that a second stream still reads when it is deleted, the driver's allocation
// under an address, a limit, and an address that another process opens.
func TestGPURaw(t *testing.T) {
	dev, err := driver.Open("cuda:0")
	testkit.Must(t, err)
	side := drivertest.NewStream(t, dev)
	const size = 64 << 20
	p, err := raw.Alloc(dev, size)
	testkit.Must(t, err)
	q, err := raw.AllocOn(dev, side, size)
	testkit.Must(t, err)
	s := dev.DefaultStream()
	testkit.Must(t, s.Fill(p, 7, size))
	m, err := s.Mark()
	testkit.Must(t, err)
	testkit.Must(t, side.WaitFor(s, m))
	for range 50 {
		testkit.Must(t, side.Copy(q, p, size))
	}
	raw.RecordStream(p+4096, side)
	raw.Delete(p)
	r, err := raw.Alloc(dev, size) // not p, unless the copies are done by now
	testkit.Must(t, err)
	testkit.Must(t, s.Fill(r, 9, size))
	got := make([]byte, size)
	testkit.Must(t, side.CopyOut(got, q))
	if !bytes.Equal(got, bytes.Repeat([]byte{7}, size)) {
		t.Error("a block was written to while another stream read it")
	}
	small, err := raw.Alloc(dev, 4096)
	testkit.Must(t, err)
	base, whole, err := raw.BaseAllocation(small + 100)
	testkit.Must(t, err)
	if base > small || whole != 2<<20 {
		t.Errorf("the driver's allocation under %#x: %d bytes at %#x, want 2 MiB at or below it", small, whole, base)
	}
	testkit.Must(t, s.CopyIn(small, []byte(question)))
	testkit.Must(t, s.Sync(context.Background()))
	ask(t, small, "cuda:0")
	answer := make([]byte, len(answered))
	testkit.Must(t, s.CopyOut(answer, small))
	if string(answer) != answered {
		t.Errorf("the other process wrote %q, want %q", answer, answered)
	}
	testkit.Must(t, raw.SetMemoryFraction(dev, 0.01))
	if _, err := raw.Alloc(dev, dev.Info().TotalMemory/50); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("two per cent of the memory where one is allowed: %v", err)
	}
	testkit.Must(t, raw.SetMemoryFraction(dev, 1))
	for _, p := range []driver.Pointer{q, r, small} {
		raw.Delete(p)
	}
	testkit.Must(t, raw.EmptyCache())
	stats, err := raw.Stats(dev)
	testkit.Must(t, err)
	if stats.ReservedBytes.All.Current != 0 {
		t.Errorf("%d bytes are reserved in the end", stats.ReservedBytes.All.Current)
	}
	raw.SetCurrent(dev, nil)
	testkit.Must(t, side.Close())
	testkit.Must(t, dev.Close())
}

// Another process opens a GPU's memory that allocators map page by page.
func TestGPUDefect15_IPCHandleOfMappedMemory(t *testing.T) {
	for name, open := range mapping {
		t.Run(name, func(t *testing.T) {
			dev, err := driver.Open("cuda:0")
			testkit.Must(t, err)
			sharesMapped(t, dev, "cuda:0", open)
			testkit.Must(t, dev.Close())
		})
	}
}
