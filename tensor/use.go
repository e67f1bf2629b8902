package tensor

import (
	"errors"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// use orders work on s after earlier uses: see Tensor.Use.
func (r *storageState) use(s driver.Stream, writes bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.orderUse(s, writes); err != nil {
		return err
	}
	if r.fixed || r.device.graphs == nil {
		return nil
	}
	// A graph keeps the address. The check comes after orderUse, since a wait can make s part of a capture.
	captures, err := r.device.graphs.Capturing(s)
	r.fixed = captures
	return err
}

// orderUse is use without the check for captures. The caller holds r.mu.
func (r *storageState) orderUse(s driver.Stream, writes bool) error {
	if s == r.writer && (!writes || len(r.readers) == 0) {
		return nil
	}
	// A write by s also waits for reads by the writer itself, which the readers do not list.
	if known := slices.Contains(r.synced, s); s != r.writer && (writes || !known) {
		if err := waitForQueued(s, r.writer); err != nil {
			return err
		}
		if !known {
			r.synced = append(r.synced, s)
		}
	}
	if s != r.origin && !slices.Contains(r.used, s) {
		r.used = append(r.used, s)
	}
	if !writes {
		if s != r.writer && !slices.Contains(r.readers, s) {
			r.readers = append(r.readers, s)
		}
		return nil
	}
	for _, reader := range r.readers {
		if reader != s {
			if err := waitForQueued(s, reader); err != nil {
				return err
			}
		}
	}
	r.writer, r.synced, r.readers = s, r.synced[:0], r.readers[:0]
	return nil
}

// waitForQueued makes s wait for the work queued on other so far. A closed stream has finished its work.
func waitForQueued(s, other driver.Stream) error {
	m, err := other.Mark()
	if err == nil {
		err = s.WaitFor(other, m)
	}
	if errors.Is(err, driver.ErrClosed) {
		if _, own := s.Mark(); own == nil {
			return nil
		}
	}
	return err
}
