package memtest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// reserveMemory allocates memory of the device until only leave bytes are left.
func (w *model) reserveMemory(t testing.TB, leave int64) {
	t.Helper()
	free := w.available(t)
	if free <= leave {
		return
	}
	p, err := w.dev.Alloc(free - leave)
	if errors.Is(err, driver.ErrNoMemory) {
		return // the device has less memory than it reports
	}
	testkit.Must(t, err)
	w.baseline -= free - leave
	w.tight = true
	w.undo = func() error {
		w.baseline += free - leave
		return w.dev.Free(p)
	}
}

// finish frees all blocks and checks that no memory is lost, before and after the allocator is closed.
func (w *model) finish() error {
	rng := rand.New(rand.NewPCG(w.cfg.Seed, 2))
	for len(w.live) > 0 {
		if err := w.free(w.live[rng.IntN(len(w.live))]); err != nil {
			return err
		}
	}
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.empty(); err != nil {
		return fmt.Errorf("EmptyCache at the end: %w", err)
	}
	if err := w.checkReports(true); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	free, _, err := w.dev.Available()
	if err != nil {
		return err
	}
	_, trims := mem.Find[mem.Trimmer](w.a)
	if trims && free < w.baseline-w.cfg.Reserved {
		return fmt.Errorf("all blocks freed and the cache emptied: %d bytes of the device are still held, %d allowed",
			w.baseline-free, w.cfg.Reserved)
	}
	return w.close()
}

// close closes the allocator and checks that all memory was returned to the device.
func (w *model) close() error {
	if c, ok := mem.Find[io.Closer](w.a); ok {
		if err := c.Close(); err != nil {
			return fmt.Errorf("close the allocator: %w", err)
		}
	}
	w.newTB.clean()
	if w.newTB.Failed() {
		return fmt.Errorf("close the allocator: %s", w.newTB.text.String())
	}
	free, _, err := w.dev.Available()
	if err != nil {
		return err
	}
	if free != w.baseline {
		return fmt.Errorf("closed, the allocator has left the device with %d bytes fewer", w.baseline-free)
	}
	if w.undo != nil {
		if err := w.undo(); err != nil {
			return err
		}
	}
	if w.sim != nil {
		if reports := w.sim.Reports(); len(reports) > 0 {
			return fmt.Errorf("the device reports: %w", errors.Join(reports...))
		}
		if now := w.sim.Leaks(); now.String() != w.leaks.String() {
			return fmt.Errorf("closed, the allocator has left the device with %v; before it there were %v", now,
				w.leaks)
		}
	}
	return nil
}
