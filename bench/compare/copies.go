package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// copyMemory is what copies go from and to. It is kept from one question to the next: page-locking 1 GiB takes longer
// than to copy it.
type copyMemory struct {
	size     int64
	pageable []byte // an ordinary slice
	pinned   []byte // nil if the device knows no page-locked memory
	device   [2]driver.Pointer
}

// grow makes sure that there are size bytes of each, all of them touched once.
func (m *copyMemory) grow(dev driver.Device, size int64) (err error) {
	if size <= m.size {
		return nil
	}
	if err := m.release(dev); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.release(dev))
		}
	}()
	for i := range m.device {
		if m.device[i], err = dev.Alloc(size); err != nil {
			return err
		}
		if err := dev.DefaultStream().Fill(m.device[i], 0, size); err != nil {
			return err
		}
	}
	if p := dev.Pinned(); p != nil {
		if m.pinned, err = p.AllocHost(size); err != nil {
			return err
		}
		touch(m.pinned)
	}
	m.pageable = make([]byte, size)
	touch(m.pageable)
	m.size = size
	return nil
}

// touch writes every page.
func touch(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
}

func (m *copyMemory) release(dev driver.Device) error {
	var failures []error
	for _, p := range m.device {
		if p != 0 {
			failures = append(failures, dev.Free(p))
		}
	}
	if m.pinned != nil {
		failures = append(failures, dev.Pinned().FreeHost(m.pinned))
	}
	*m = copyMemory{}
	return errors.Join(failures...)
}

// repeat does work once, and then again and again for the time d: the seconds of one.
func repeat(d time.Duration, work func() error) (float64, error) {
	if err := work(); err != nil {
		return 0, err
	}
	n := 0
	start := time.Now()
	for n == 0 || time.Since(start) < d {
		if err := work(); err != nil {
			return 0, err
		}
		n++
	}
	return time.Since(start).Seconds() / float64(n), nil
}

// hostCopy copies size bytes between host and device, each copy waited for: "rate" is in GB/s (10^9 bytes).
func (a *asker) hostCopy(in bool, kind string, size int64, d time.Duration) (map[string]float64, error) {
	m := &a.copies
	if err := m.grow(a.dev, size); err != nil {
		return nil, err
	}
	s, device := a.dev.DefaultStream(), m.device[0]
	var host []byte
	var work func() error
	switch kind {
	case "pageable":
		host = m.pageable[:size]
		work = func() error { return s.CopyIn(device, host) }
		if !in {
			work = func() error { return s.CopyOut(host, device) }
		}
	case "pinned":
		p := a.dev.Pinned()
		if p == nil {
			return nil, fmt.Errorf("%s knows no page-locked memory", a.dev.Info().Name)
		}
		host = m.pinned[:size]
		queue := func() error { return p.CopyInAsync(s, device, host) }
		if !in {
			queue = func() error { return p.CopyOutAsync(s, host, device) }
		}
		work = func() error { return errors.Join(queue(), s.Sync(context.Background())) }
	default:
		return nil, fmt.Errorf("no memory is called %q", kind)
	}
	if err := a.arrives(in, host, work); err != nil {
		return nil, err
	}
	seconds, err := repeat(d, work)
	return map[string]float64{"rate": float64(size) / 1e9 / seconds}, err
}

// arrives does the copy once and looks whether the last bytes came along: a copy that copies nothing is no fast copy.
func (a *asker) arrives(in bool, host []byte, work func() error) error {
	tail := max(0, len(host)-64)
	s, there := a.dev.DefaultStream(), a.copies.device[0]+driver.Pointer(tail)
	want := bytes.Repeat([]byte{0xa5}, len(host)-tail)
	got := make([]byte, len(want)) // zeros at first
	var err error
	if in {
		copy(host[tail:], want)
		err = errors.Join(s.CopyIn(there, got), work(), s.CopyOut(got, there))
	} else {
		clear(host[tail:])
		err = errors.Join(s.CopyIn(there, want), work())
		copy(got, host[tail:])
	}
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("a copy of %d bytes did not arrive", len(host))
	}
	return err
}

// deviceWork copies within the device, or fills, size bytes at a time, many queued before one wait: "rate" is in GB/s,
// read and written.
func (a *asker) deviceWork(isCopy bool, size int64, d time.Duration) (map[string]float64, error) {
	const queued = 20
	m := &a.copies
	if err := m.grow(a.dev, size); err != nil {
		return nil, err
	}
	s := a.dev.DefaultStream()
	one, moved := func() error { return s.Fill(m.device[0], 0, size) }, float64(size)
	if isCopy {
		one, moved = func() error { return s.Copy(m.device[0], m.device[1], size) }, 2*float64(size)
	}
	seconds, err := repeat(d, func() error {
		for range queued {
			if err := one(); err != nil {
				return err
			}
		}
		return s.Sync(context.Background())
	})
	return map[string]float64{"rate": queued * moved / 1e9 / seconds}, err
}
